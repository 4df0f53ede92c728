"""Noise that makes a release safe, the random stream that noise comes from, and the account of several releases.

accounting         gaussian_scale: the noise that a guarantee needs (gaussian_delta, gaussian_epsilon: its inverses);
                   Composition: the loss of privacy by several releases
keystream          NoiseKey: the secret that noise comes from; VersionNoise: that of a version; NoiseSeed: of one matrix
noise              release_matrix: A with noise, back on the simplex, as a NoisedMatrix; its parts are plan_noise, which
                   gives a NoisePlan, add_noise and project_columns
head_noise         release_task_weights: B = A w with noise (HeadConstants, head_constants, head_sensitivity)
Private mode, whose versions cannot be subtracted:
private_noise      documents as matrices of bounded size, and their sum with the noise of a period's versions
private_topics     the words of a period, and a topic model, from noised sums
"""
