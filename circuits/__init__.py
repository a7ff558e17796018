"""Everything that touches a model: hooks, interventions, claims and the command."""
