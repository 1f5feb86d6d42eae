"""``bin/reproduce``: known bugs of Java's controller, shown on a real one and on ours."""
