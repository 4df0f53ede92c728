"""The paper's mode and formulas in the service, handed to the scheduler from outside.

theorem_modeller   the Modeller of theorem mode: Algorithm 1 with the noise of its proof, and the check of a version
deletion_capacity  the capacity of a base model: the rule in force, the paper's formulas, trials
"""
