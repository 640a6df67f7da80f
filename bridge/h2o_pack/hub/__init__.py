"""Finds, describes and downloads models on the Hugging Face hub."""
