"""The engine: replays workflow bodies, runs steps, and moves runs forward."""
