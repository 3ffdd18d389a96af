"""The models, a room each: settings (without torch), network, recipe, and what it alone needs."""
