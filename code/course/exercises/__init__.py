"""One file a lesson, each declaring LESSON."""
