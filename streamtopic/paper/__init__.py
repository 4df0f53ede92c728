"""The paper to the letter, as pure functions: Algorithm 1, its noise, the conditions of its proof, deletion capacity.

Modules of `counts`, `topics` and `privacy` never import this wing.

algorithm1         Statistics: the part of S that Algorithm 1 keeps; remaining: takes a forget set out of the counts;
                   unlearn_base: makes a BaseModel by the Newton step and the projection; retrain_rows: makes one by
                   the exact optimum; literal_head: the paper's own form of an unlearned head
theorem            theorem_release: Algorithm 1 with the noise of its proof, a TheoremRelease (TheoremOptions,
                   TheoremPlan, plan_theorem; Vacuity: noise over model); assumption_checks: the conditions of the
                   proof on a ProofSetting, one Condition each (sample_size, guaranteed_error: of the learner)
capacity_formulas  how many deletions a base model bears; base_capacity: by theorem 1, task_capacity: of a task, by
                   theorem 3, precondition: of the proof, implied_constant: the c that a measured capacity represents;
                   fit_constants: measures a, p, gamma, eps0 of a model as ModelConstants
"""
