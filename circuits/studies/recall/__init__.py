"""The recall study: claims, evidence and figures."""
