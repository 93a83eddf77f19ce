"""Export of models to the formats of CTranslate2, Argos Translate and Hugging Face, and import of Marian models."""
