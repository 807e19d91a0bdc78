"""Which programs of a run earn more, and how its policy chooses operators."""
