"""Directories for CTranslate2."""
