"""What one adapter pod or node holds, counted. The ground on which policies and the state stand."""
