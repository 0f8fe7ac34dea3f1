"""Pictures of what a training did, and of how positions are encoded."""
