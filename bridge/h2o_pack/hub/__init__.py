"""The Hugging Face Hub: finding, describing and downloading a model."""
