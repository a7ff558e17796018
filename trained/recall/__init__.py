"""In-context factual recall: an associative memory read by pairwise attention."""
