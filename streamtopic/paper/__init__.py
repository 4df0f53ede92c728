"""The paper to the letter, as pure functions: Algorithm 1, its noise, the conditions of its proof, deletion capacity.

Modules of `counts`, `topics` and `privacy` never import this wing.

algorithm1         BaseStatistics: the T(S) that is kept; remaining: takes a forget set out of the counts;
                   unlearn_base: makes a BaseModel by the Newton step and the projection; retrain_rows: makes one by
                   the exact optimum; literal_head: the paper's own form of an unlearned head
theorem            examine: Algorithm 1 with its noise and every condition of the proof (TheoremOptions, TheoremPlan,
                   plan_theorem); draw: adds the noise; assumption_checks: the conditions on a ProofSetting, one
                   Condition each (sample_size, guaranteed_error: of the learner)
capacity_formulas  how many deletions a base model bears; base_capacity: by theorem 1, task_capacity: of a task, by
                   theorem 3, precondition: of the proof;
                   fit_constants: measures a, p, gamma, eps0 of a model as ModelConstants
"""
