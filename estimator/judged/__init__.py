"""What a judge's verdicts say of correct answers, given how well it agrees with labels."""
