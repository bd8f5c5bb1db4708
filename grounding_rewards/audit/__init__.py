"""Can a reward be gamed? Scripted answers that play against it, and how it responds; numpy alone, no model."""
