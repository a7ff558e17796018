"""The signals over a dataset, in shards that are whole or absent."""
