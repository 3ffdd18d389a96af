"""The models, one package each: settings (without torch), network, recipe, and their own helpers."""
