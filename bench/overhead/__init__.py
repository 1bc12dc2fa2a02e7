"""What a request through Tokenweir costs against plain nginx and other routers (`make bench-overhead`)."""
