"""Reports of single machines, how they are made, and the page with all of them."""
