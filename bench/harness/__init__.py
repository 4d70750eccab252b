"""What bench/compare and bench/profile are made of."""
