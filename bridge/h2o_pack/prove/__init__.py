"""What machines showed: a report of one, how it is made, and the page of all of them."""
