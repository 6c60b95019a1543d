"""The command line. One module a group of commands; heavy libraries are imported inside them."""
