"""What Preheat's own containers do inside pods, store apart: read a request, lay files, give an answer."""
