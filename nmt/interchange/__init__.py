"""Export of models for CTranslate2, Argos Translate, Hugging Face, Marian and browsers, and import of other models."""
