"""Thirteen well-known LangGraph application shapes, each as its public tutorial writes it and with VineLM."""
