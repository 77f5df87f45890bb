"""The look of the app: themes, and the hue of each drafter."""
