"""In-context recall in a pretrained language model; none of it is the paper's."""
