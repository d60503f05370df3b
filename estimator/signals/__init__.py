"""What requests show, estimated: answers that agree, signals, and how probable it is that each answer is right."""
