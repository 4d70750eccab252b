"""What a message costs on the kernel's rxe and on bee0, in instructions of the guest: lab/compare-rxe."""
