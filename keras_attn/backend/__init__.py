"""Operations whose implementation differs by Keras backend, behind one dispatch each."""
