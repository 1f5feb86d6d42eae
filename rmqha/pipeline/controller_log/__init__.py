"""Stores of controllers as rows, and the state at any index made again from them."""
