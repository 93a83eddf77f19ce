"""Training: preparing the corpus, the step, the loop around it, and what is measured on the way."""
