"""The five studies, one package each."""
