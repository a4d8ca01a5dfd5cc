"""What the arguments of Trainer mean for a Plan, in Trainer and in Axolotl, which hands its keys on to it."""
