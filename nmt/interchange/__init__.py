"""Export of models for CTranslate2, Argos Translate, Hugging Face and Marian, and import from the last two."""
