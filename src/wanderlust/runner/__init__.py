"""The engine that plays one episode or a hundred thousand, and the store that keeps them."""
