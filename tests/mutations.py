"""Change one sign or factor in each kernel of the four papers, and see whether a test fails.

    python tests/mutations.py                     # all
    python tests/mutations.py --only EAGLE NC1    # those whose line contains one of them

Each mutation replaces a text in one file of a copy of the package, and runs the tests named beside
it up to the first failure, in a forked process. It is *killed* if a test fails, and *survives* if
none does. The same tests first run on the package as it is. The exit code is 1 if a mutation
survives, or a run is neither: no test was found, or the mutant hangs.
"""

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: Seconds after which the tests of a mutant end, and those of the package as it is.
TIMEOUT, FIRST_TIMEOUT = 300, 1800


class Mutation(NamedTuple):
    """A change of one file of the package, and the tests of which one must fail."""

    paper: str
    kernel: str
    file: str  # below sklearn_xlc
    old: str  # occurs once in the file
    new: str
    tests: str  # below tests: a file, and the names of tests in it


MHE, DFT, NC, EAGLE = "Multi-Head", "DFT", "Neural collapse", "EAGLE"

MUTATIONS = [
    # --- Multi-Head Encoding ----------------------------------------------------------------
    Mutation(
        MHE, "digits of labels, Eq. 10", "codes/_mixed_radix.py",
        "digits[..., h], remainder = np.divmod(remainder, place_value)",
        "remainder, digits[..., h] = np.divmod(remainder, place_value)",
        "codes/test_mixed_radix.py::test_digits_by_hand",
    ),
    Mutation(
        MHE, "labels of digits, Eq. 11", "codes/_mixed_radix.py",
        "ids = digits @ self.place_values  #", "ids = digits @ self.place_values[::-1]  #",
        "codes/test_mixed_radix.py::test_encoding_is_lexicographic_and_inverts",
    ),
    Mutation(
        MHE, "best labels of a product: prefixes kept", "codes/_mixed_radix.py",
        "k // np.arange(1, n_prefixes + 1)", "k // np.arange(2, n_prefixes + 2)",
        "codes/test_mixed_radix.py::test_topk_equals_brute_force",
    ),
    Mutation(
        MHE, "best labels of a product: labels that exist", "codes/_mixed_radix.py",
        "rank_rows(scores[:, :digit], k)", "rank_rows(scores[:, : digit + 1], k)",
        "codes/test_mixed_radix.py::test_topk_equals_brute_force",
    ),
    Mutation(
        MHE, "normaliser of a product", "codes/_mixed_radix.py",
        "free[h] = free[h + 1] + _logsumexp", "free[h] = free[h + 1] - _logsumexp",
        "codes/test_mixed_radix.py::test_log_normalizer_equals_brute_force",
    ),
    Mutation(
        MHE, "confusion degree, Eq. 15", "codes/_head_lengths.py",
        "numerator / math.prod(checked[:-1])", "numerator / math.prod(checked[1:])",
        "codes/test_head_lengths.py::test_confusion_degree_by_hand",
    ),
    Mutation(
        MHE, "equal head lengths", "codes/_head_lengths.py",
        "root ** (n_heads - n_longer) < n_labels:", "root ** (n_heads - n_longer) <= n_labels:",
        "codes/test_head_lengths.py::test_minimal_cover_of_every_small_label_space",
    ),
    Mutation(
        MHE, "descending head lengths", "codes/_head_lengths.py",
        "_floor_root(n_labels, n_heads + 1)", "_floor_root(n_labels, n_heads + 2)",
        "codes/test_head_lengths.py",
    ),
    Mutation(
        MHE, "product: digits of targets", "heads/product.py",
        "targets.ids[:, None] // place_values % lengths",
        "targets.ids[:, None] % place_values % lengths",
        "heads/test_product.py::test_ce_is_the_negative_log_of_the_unnormalised_product",
    ),
    Mutation(
        MHE, "product: cross-entropy", "heads/product.py",
        "self.criterion.value(-(mixing[rows]", "self.criterion.value((mixing[rows]",
        "heads/test_product.py::test_ce_is_the_negative_log_of_the_unnormalised_product",
    ),
    Mutation(
        MHE, "product: groups, Eq. 16", "heads/product.py",
        "-(mixing[rows] + products).logsumexp(1)", "-(products - mixing[rows]).logsumexp(1)",
        "heads/test_product.py::test_ce_is_the_negative_log_of_the_unnormalised_product",
    ),
    Mutation(
        MHE, "product: Algorithm 2", "heads/digits.py",
        "each = weights / logits.shape[1]", "each = weights / self.code.n_heads",
        "heads/test_product.py::test_bce_is_the_mean_over_the_concatenated_logits",
    ),
    Mutation(
        MHE, "product: one softmax over all heads", "heads/digits.py",
        "-logits.log_softmax(1)[at]).sum(1)", "-logits.log_softmax(1)[at]).mean(1)",
        "heads/test_product.py::test_joint_ce_has_the_floor_h_log_h",
    ),
    Mutation(
        MHE, "product: positive scores, Theorem 1", "heads/digits.py",
        "needs_normaliser else F.logsigmoid(logits)", "needs_normaliser else logits",
        "heads/test_product.py::test_labels_rank_by_products_of_positive_numbers",
    ),
    Mutation(
        MHE, "product: ranking of groups", "heads/digits.py",
        "+ mixing[:, group, None]", "- mixing[:, group, None]",
        "heads/test_product.py::test_scores_and_topk_equal_brute_force",
    ),
    Mutation(
        MHE, "product: end of the search in groups", "heads/digits.py",
        "best[:, -1] < np.logaddexp.reduce", "best[:, -1] > np.logaddexp.reduce",
        "heads/test_digits.py::"
        "test_the_search_of_a_mixture_finds_a_label_that_is_second_to_many_in_each_group",
    ),
    Mutation(
        MHE, "label sets as classes: digits", "heads/powerset.py",
        "<< (starts[heads + 1] - 1 - targets.ids)", "<< (targets.ids - starts[heads])",
        "heads/test_powerset.py::test_ce_is_minus_the_log_probability_of_the_label_set",
    ),
    Mutation(
        MHE, "label sets as classes: log odds of labels", "heads/powerset.py",
        "return holding - without", "return holding + without",
        "heads/test_powerset.py::test_scores_are_the_log_odds_of_marginals",
    ),
    Mutation(
        MHE, "cascade: multi-class loss", "heads/cascade.py",
        "surprise = -self._path_to(targets.ids, targets.rows, features)",
        "surprise = self._path_to(targets.ids, targets.rows, features)",
        "heads/test_cascade.py::test_multi_class_loss_is_the_negative_log_probability",
    ),
    Mutation(
        MHE, "cascade: sum over levels", "heads/cascade.py",
        "loss = loss + (shard.sum_of_all(of_level)", "loss = loss - (shard.sum_of_all(of_level)",
        "heads/test_cascade.py::test_multilabel_loss_and_gradients_equal_the_definition",
    ),
    Mutation(
        MHE, "cascade: means of levels, Algorithm 3", "heads/cascade.py",
        "(weights / n_nodes)[rows]", "(weights * n_nodes)[rows]",
        "heads/test_cascade.py::test_multilabel_loss_and_gradients_equal_the_definition",
    ),
    Mutation(
        MHE, "cascade: parents of positives", "heads/cascade.py",
        "nodes = targets.ids // int(self.code.place_values[level])\n        key,",
        "nodes = targets.ids % int(self.code.place_values[level])\n        key,",
        "heads/test_cascade.py::test_positives_beyond_the_beam_are_not_dropped",
    ),
    Mutation(
        MHE, "cascade: beam in training", "heads/cascade.py",
        "torch.argsort(scores, descending=True, stable=True)",
        "torch.argsort(scores, descending=False, stable=True)",
        "heads/test_cascade.py::test_multilabel_loss_and_gradients_equal_the_definition",
    ),
    Mutation(
        MHE, "cascade: exponent of the path", "heads/cascade.py",
        "(self.path_exponent if last else 1.0) * path[..., None] + own",
        "path[..., None] + (self.path_exponent if last else 1.0) * own",
        "heads/test_cascade.py::test_full_beam_equals_exhaustive_scoring",
    ),
    Mutation(
        MHE, "cascade: log odds", "heads/cascade.py",
        "scores - torch.log(-torch.expm1(scores))", "scores + torch.log(-torch.expm1(scores))",
        "heads/test_cascade.py::test_full_beam_equals_exhaustive_scoring",
    ),
    Mutation(
        MHE, "sampling: position of the target, Algorithm 4", "heads/sampling.py",
        "torch.searchsorted(ids.view(-1), targets.ids[true])",
        "targets.ids[true] % self.length",
        "heads/test_sampling.py::test_without_negatives_only_the_sub_heads_of_the_batch_compete",
    ),
    Mutation(
        MHE, "sampling: heads of a sample, Eq. 13", "heads/sampling.py",
        "others.scatter_(1, heads, False)", "others.scatter_(1, heads[:, :1], False)",
        "heads/test_sampling.py::test_own_heads_are_the_concatenation_of_the_paper",
    ),
    Mutation(
        MHE, "sampling: other heads of a sample", "heads/sampling.py",
        "drawn += drawn >= own[:, None]", "drawn += drawn > own[:, None]",
        "heads/test_sampling.py::test_heads_drawn_for_a_row_are_uniform",
    ),
    Mutation(
        MHE, "sampling: correction", "heads/sampling.py",
        "logits = logits - counts", "logits = logits + counts",
        "heads/test_sampling.py::test_correction_subtracts_the_log_chance_of_the_sub_head_from_the_logits",
    ),
    Mutation(
        MHE, "sampling: chance of a sub-head", "heads/sampling.py",
        "clamp(max=1.0)).pow(n_rows)", "clamp(max=1.0)).pow(2 * n_rows)",
        "heads/test_sampling.py::test_expected_counts_agree_with_simulation",
    ),
    Mutation(
        MHE, "sampling: angular margin", "heads/sampling.py",
        "math.cos(margin) - sine * math.sin(margin)", "math.cos(margin) + sine * math.sin(margin)",
        "heads/test_sampling.py::test_arcface_equals_its_definition_on_both_branches",
    ),
    # --- the sigmoid bottleneck -------------------------------------------------------------
    Mutation(
        DFT, "Fourier matrix, Eq. 8: norm of cosines", "geometry/_fourier.py",
        "np.sqrt(2 / n_labels) * np.cos(angles)", "np.sqrt(1 / n_labels) * np.cos(angles)",
        "geometry/test_fourier.py::test_columns_are_orthonormal",
    ),
    Mutation(
        DFT, "Fourier matrix, Eq. 8: sign of sines", "geometry/_fourier.py",
        "rows[:, 2::2] = np.sqrt(2 / n_labels)", "rows[:, 2::2] = -np.sqrt(2 / n_labels)",
        "geometry/test_fourier.py::test_entries_by_hand",
    ),
    Mutation(
        DFT, "Fourier matrix: constant column", "geometry/_fourier.py",
        "rows[:, 0] = 1 / np.sqrt(n_labels)", "rows[:, 0] = 2 / np.sqrt(n_labels)",
        "geometry/test_fourier.py::test_columns_are_orthonormal",
    ),
    Mutation(
        DFT, "Fourier transform", "geometry/_fourier.py",
        "(cosines - 1j * sines) / np.sqrt(2)", "(cosines + 1j * sines) / np.sqrt(2)",
        "geometry/test_fourier.py::test_transforms_agree_and_are_adjoint",
    ),
    Mutation(
        DFT, "adjoint of the transform", "geometry/_fourier.py",
        "-np.sqrt(2) * spectrum[..., 1 : max_active + 1].imag",
        "np.sqrt(2) * spectrum[..., 1 : max_active + 1].imag",
        "geometry/test_fourier.py::test_transforms_agree_and_are_adjoint",
    ),
    Mutation(
        DFT, "witness: signs", "geometry/_fourier.py",
        "np.where(y > 0, 1.0, -1.0) * np.exp(log_size)",
        "np.where(y > 0, -1.0, 1.0) * np.exp(log_size)",
        "geometry/test_fourier.py::test_witness_has_the_wanted_signs",
    ),
    Mutation(
        DFT, "witness: roots between labels", "geometry/_fourier.py",
        "(2 * np.arange(n_labels) + 1)", "(2 * np.arange(n_labels) + 1.5)",
        "geometry/test_fourier.py::"
        "test_witness_is_a_product_of_sines_with_roots_halfway_between_labels",
    ),
    Mutation(
        DFT, "witness: sign changes allowed", "geometry/_fourier.py",
        "if n_changes > 2 * max_active:", "if n_changes > 2 * max_active + 2:",
        "geometry/test_fourier.py::test_witness_refuses_too_many_sign_changes",
    ),
    Mutation(
        DFT, "columns of max_active", "geometry/_fourier.py",
        "    width = 2 * max_active + 1\n    if width > n_labels:",
        "    width = 2 * max_active\n    if width > n_labels:",
        "geometry/test_fourier.py::test_full_rank_is_refused_with_the_reason",
    ),
    Mutation(
        DFT, "theorem: sets with more changes are not argmaxable", "geometry/_decision.py",
        "count_sign_changes(y) <= 2 * max_active",
        "count_sign_changes(y) <= 2 * max_active + 2",
        "geometry/test_argmaxability.py::test_all_assignments_of_fourier_layers",
    ),
    Mutation(
        DFT, "theorem: sets with few changes are argmaxable", "geometry/_decision.py",
        "count_sign_changes(y) <= 2 * max_active", "count_sign_changes(y) <= 0",
        "geometry/test_decision.py::test_the_closed_form_comes_first_for_the_fourier_matrix",
    ),
    Mutation(
        DFT, "sign changes, Eq. 6", "geometry/_counting.py",
        "(sets.indices + 1) % n_labels", "(sets.indices + 2) % n_labels",
        "geometry/test_counting.py::test_sign_changes_of_one_assignment",
    ),
    Mutation(
        DFT, "number of argmaxable sets, Eq. 2", "geometry/_counting.py",
        "2 * _sum_of_binomials(n_labels - 1, n_features - 1)",
        "2 * _sum_of_binomials(n_labels - 1, n_features)",
        "geometry/test_counting.py::test_known_counts",
    ),
    Mutation(
        DFT, "linear program, Eq. 3: centre", "geometry/_linear_program.py",
        "Ball(-multipliers[:n_features]", "Ball(multipliers[:n_features]",
        "geometry/test_linear_program.py::test_ball_in_a_triangle",
    ),
    Mutation(
        DFT, "linear program, Eq. 3: biases", "geometry/_linear_program.py",
        "0.0 if offsets is None else offsets\n    eye",
        "0.0 if offsets is None else -offsets\n    eye",
        "geometry/test_linear_program.py::test_ball_in_a_triangle",
    ),
    Mutation(
        DFT, "linear program, Eq. 3: box", "geometry/_linear_program.py",
        "np.full(n_labels + 2 * n_features, box)", "np.full(n_labels + 2 * n_features, 2 * box)",
        "geometry/test_argmaxability.py::test_radius_is_that_of_equation_3",
    ),
    Mutation(
        DFT, "radius of a witness", "geometry/_decision.py",
        "radius = float(np.min(signs[used] * margins",
        "radius = float(np.min(-signs[used] * margins",
        "geometry/test_argmaxability.py::test_radius_is_that_of_the_ball_around_the_witness",
    ),
    Mutation(
        DFT, "proof of a witness", "geometry/_certificates.py",
        "if _dot(integer_row(row), point) <= 0:", "if _dot(integer_row(row), point) < 0:",
        "geometry/test_certificates.py::test_ties_and_points_at_infinity_are_no_witness",
    ),
    Mutation(
        DFT, "proof of a contradiction", "geometry/_certificates.py",
        "weights = [-matrix[i][free] for i in range(pivots)]",
        "weights = [matrix[i][free] for i in range(pivots)]",
        "geometry/test_certificates.py",
    ),
    Mutation(
        DFT, "perceptron", "geometry/_linear_program.py",
        "z = z + signs[worst] * rows[worst]", "z = z - signs[worst] * rows[worst]",
        "geometry/test_linear_program.py::test_perceptron_corrects_the_mean_of_the_rows",
    ),
    Mutation(
        DFT, "layer: chunks of labels", "heads/fourier.py",
        "turned[:, 2::2] = odd * cosines - even * sines",
        "turned[:, 2::2] = odd * cosines + even * sines",
        "heads/test_fourier.py::test_three_ways_agree_with_the_kernels",
    ),
    Mutation(
        DFT, "layer: gradient of chunks", "heads/fourier.py",
        "_turn(coefficients, cosines, -sines)", "_turn(coefficients, cosines, sines)",
        "heads/test_fourier.py::test_loss_is_its_definition_and_its_gradient_is_right",
    ),
    Mutation(
        DFT, "layer: start of section 5.1", "heads/fourier.py",
        "self.n_labels**0.5 * self.criterion.prior(share)[0]",
        "self.n_labels * self.criterion.prior(share)[0]",
        "estimators/test_dft_sigmoid.py::test_the_start_of_the_paper",
    ),
    Mutation(
        DFT, "samples beyond max_active", "estimators/dft_sigmoid.py",
        "np.diff(Y.indptr) > max_active", "np.diff(Y.indptr) >= max_active",
        "estimators/test_dft_sigmoid.py::test_rows_beyond_the_guarantee_are_counted",
    ),
    # --- multi-label neural collapse --------------------------------------------------------
    Mutation(
        NC, "simplex ETF, Eq. 6", "geometry/_simplex_etf.py",
        "scale = np.sqrt(n_classes / (n_classes - 1))",
        "scale = np.sqrt((n_classes - 1) / n_classes)",
        "geometry/test_simplex_etf.py::test_simplex_is_equation_6",
    ),
    Mutation(
        NC, "simplex ETF in the head: scale", "heads/etf.py",
        "(self.n_labels / max(1, self.n_labels - 1)) ** 0.5",
        "(self.n_labels / max(1, self.n_labels - 1)) ** -0.5",
        "heads/test_etf.py::test_logits_are_products_with_the_frame",
    ),
    Mutation(
        NC, "simplex ETF in the head: gradient", "heads/etf.py",
        "into -= scaled.sum(1, keepdim=True)", "into += scaled.sum(1, keepdim=True)",
        "heads/test_losses.py::test_every_loss_in_every_head[whole-etf-bce-True-False]",
    ),
    Mutation(
        NC, "feature decay, Eq. 4", "heads/etf.py",
        "self.feature_decay * (weights @ inputs.square().sum(1))",
        "self.feature_decay * (weights @ inputs.square().mean(1))",
        "heads/test_etf.py::test_loss_is_its_definition_and_its_gradient_is_right",
    ),
    Mutation(
        NC, "pick-all-labels: value", "heads/losses.py",
        "self.competition * own + (1 - self.competition)",
        "self.competition * own - (1 - self.competition)",
        "heads/test_etf.py::test_loss_is_its_definition_and_its_gradient_is_right",
    ),
    Mutation(
        NC, "pick-all-labels: derivative", "heads/losses.py",
        "self.competition * own, (1 - self.competition) * margin",
        "self.competition * own, (self.competition - 1) * margin",
        "heads/test_etf.py::test_loss_is_its_definition_and_its_gradient_is_right",
    ),
    Mutation(
        NC, "pick-all-labels: focal weight", "heads/losses.py",
        "rest = -torch.expm1(-surprise)", "rest = torch.exp(-surprise)",
        "heads/test_losses.py::test_every_loss_in_every_head[whole-flat-pick-all-focal-True-False]",
    ),
    Mutation(
        NC, "pick-all-labels: focal derivative", "heads/losses.py",
        "weight * (1 + self.gamma * odds)", "weight * (1 - self.gamma * odds)",
        "heads/test_losses.py::test_every_loss_in_every_head[whole-flat-pick-all-focal-True-False]",
    ),
    Mutation(
        NC, "pick-all-labels: mean over labels", "heads/losses.py",
        "weights[rows] * targets / mass[rows]", "weights[rows] * targets * mass[rows]",
        "heads/test_etf.py::test_loss_is_its_definition_and_its_gradient_is_right",
    ),
    Mutation(
        NC, "pick-all-labels: log probability", "heads/chunked.py",
        "everything[rows] - logits, negative[rows] - logits",
        "negative[rows] - logits, everything[rows] - logits",
        "heads/test_etf.py::test_loss_is_its_definition_and_its_gradient_is_right",
    ),
    Mutation(
        NC, "pick-all-labels: gradient of positives", "heads/chunked.py",
        "- by_surprise - by_margin", "- by_surprise + by_margin",
        "heads/test_etf.py::test_loss_is_its_definition_and_its_gradient_is_right",
    ),
    Mutation(
        NC, "label smoothing: share of the target", "heads/chunked.py",
        "share * (1 - criterion.smoothing)", "share * (1 + criterion.smoothing)",
        "heads/test_losses.py::test_label_smoothing_is_that_of_torch",
    ),
    Mutation(
        NC, "label smoothing: mean over labels", "heads/chunked.py",
        "everything - self.total / self.count", "everything - self.total",
        "heads/test_losses.py::test_label_smoothing_is_that_of_torch",
    ),
    Mutation(
        NC, "label smoothing: gradient of the mean", "heads/chunked.py",
        "self.counts[part.start] / self.count, alpha=-1",
        "self.counts[part.start] / self.count, alpha=1",
        "heads/test_losses.py::test_every_loss_in_every_head[whole-flat-pick-all-smooth-True-False]",
    ),
    Mutation(
        NC, "label smoothing: gradient of the normaliser", "heads/chunked.py",
        "on_negative + smoothed.weights * factor", "on_negative - smoothed.weights * factor",
        "heads/test_losses.py::test_every_loss_in_every_head[whole-flat-pick-all-smooth-True-False]",
    ),
    Mutation(
        NC, "pick-all-labels, squared error: weight of a row", "heads/losses.py",
        'mass if self.reduction == "sum" else', '1 / mass if self.reduction == "sum" else',
        "heads/test_losses.py::test_every_loss_in_every_head[whole-flat-pick-all-squared-True-False]",
    ),
    Mutation(
        NC, "optimal scales: balance of the decays, Lemma 1", "geometry/_optimal_scales.py",
        "squares = weights + 2 * log_scales(log_rho)", "squares = weights + log_scales(log_rho)",
        "geometry/test_optimal_scales.py::test_the_equations_of_the_appendix_hold",
    ),
    Mutation(
        NC, "optimal scales: C_m of the gap", "geometry/_optimal_scales.py",
        "np.log(K - 1) - log_rho + _log_gap", "np.log(K) - log_rho + _log_gap",
        "geometry/test_optimal_scales.py::test_the_equations_of_the_appendix_hold",
    ),
    Mutation(
        NC, "optimal scales: equation of the gap", "geometry/_optimal_scales.py",
        "log_m, log_others = np.log(m), np.log(K - m)", "log_m, log_others = np.log(m), np.log(K)",
        "geometry/test_optimal_scales.py::test_the_equations_of_the_appendix_hold",
    ),
    Mutation(
        NC, "fitted scales", "geometry/_label_set_fitting.py",
        "sizes * (n_labels - sizes) / max(1, n_labels - 1)",
        "sizes * (n_labels - sizes) / max(1, n_labels)",
        "geometry/test_label_set_fitting.py::test_products_with_a_simplex_stand_for_the_features",
    ),
    Mutation(
        NC, "nearest decoding: norms of prototypes, Eq. 8", "geometry/_label_sets.py",
        "scale**2 * (m * (n_labels - m))", "scale * (m * (n_labels - m))",
        "geometry/test_label_sets.py::test_nearest_is_the_nearest_prototype_of_all",
    ),
    Mutation(
        NC, "nearest decoding: products", "geometry/_label_sets.py",
        "/ (n_labels - 1) - 2 * scale * sums", "/ (n_labels - 1) - scale * sums",
        "geometry/test_label_sets.py::test_nearest_is_the_nearest_prototype_of_all",
    ),
    Mutation(
        NC, "nearest decoding, other weights", "geometry/_label_sets.py",
        "scale[m] ** 2 * squares - 2 * scale[m]", "scale[m] ** 2 * squares + 2 * scale[m]",
        "geometry/test_label_sets.py::test_greedy_equals_nearest_on_a_simplex",
    ),
    Mutation(
        NC, "divergence decoding: sizes", "geometry/_label_sets.py",
        "-np.log(np.arange(1, means.shape[1] + 1)) - means",
        "np.log(np.arange(1, means.shape[1] + 1)) - means",
        "geometry/test_label_sets.py::test_divergence_is_the_least_of_all_sets",
    ),
    Mutation(
        NC, "divergence decoding: temperature", "geometry/_label_sets.py",
        "- means / temperature", "- means * temperature",
        "geometry/test_label_sets.py::test_divergence_is_the_least_of_all_sets",
    ),
    Mutation(
        NC, "divergence decoding: second best set", "geometry/_label_sets.py",
        "1 / (temperature * np.arange(1, max_labels + 1))",
        "temperature / np.arange(1, max_labels + 1)",
        "geometry/test_label_sets.py::test_divergence_is_the_least_of_all_sets",
    ),
    Mutation(
        NC, "decoding among seen sets", "geometry/_seen_label_sets.py",
        "np.subtract(half_norms.astype(np.float32), scores, out=scores)",
        "np.add(half_norms.astype(np.float32), scores, out=scores)",
        "geometry/test_seen_label_sets.py::test_nearest_of_random_prototypes",
    ),
    Mutation(
        NC, "NC1: inverse of the variability between", "metrics/_collapse.py",
        "directions[kept] / sizes[kept, None]", "directions[kept] * sizes[kept, None]",
        "metrics/test_collapse.py::test_the_definitions",
    ),
    Mutation(
        NC, "NC1 of label sets: directions", "metrics/_collapse.py",
        "rank=len(np.unique(found)) - 1)", "rank=len(np.unique(found)) - 2)",
        "metrics/test_collapse.py::test_the_definitions_with_more_features_than_labels",
    ),
    Mutation(
        NC, "NC2: the ideal", "metrics/_collapse.py",
        "(np.eye(n_classes) - 1 / n_classes) / np.sqrt(n_classes - 1)",
        "(np.eye(n_classes) + 1 / n_classes) / np.sqrt(n_classes - 1)",
        "metrics/test_collapse.py::test_the_definitions",
    ),
    Mutation(
        NC, "NC2, NC3: centre of the means", "metrics/_collapse.py",
        "centred = means - means.mean(axis=0) if len(classes)",
        "centred = means + means.mean(axis=0) if len(classes)",
        "metrics/test_collapse.py::test_the_definitions",
    ),
    Mutation(
        NC, "NC3: weights and means", "metrics/_collapse.py",
        "_distance_to_simplex(weights[classes], centred)",
        "_distance_to_simplex(-weights[classes], centred)",
        "metrics/test_collapse.py::test_the_definitions",
    ),
    Mutation(
        NC, "NCm: sums of means", "metrics/_collapse.py",
        "difference = np.linalg.norm(first - second, axis=1)",
        "difference = np.linalg.norm(first + second, axis=1)",
        "metrics/test_collapse.py::test_the_definitions",
    ),
    Mutation(
        NC, "soft label mass, footnote 8", "metrics/_collapse.py",
        "true.astype(np.float64).multiply(proba).sum(axis=1)",
        "true.astype(np.float64).multiply(proba).max(axis=1)",
        "metrics/test_collapse.py::test_soft_label_mass",
    ),
    # --- EAGLE ------------------------------------------------------------------------------
    Mutation(
        EAGLE, "Algorithm 1: step of the embedding", "aggregation/_embeddings.py",
        "weights = stay * weights + step * direction",
        "weights = stay * weights - step * direction",
        "aggregation/test_embeddings.py::test_algorithm_1",
    ),
    Mutation(
        EAGLE, "Algorithm 1: step of the similarities", "aggregation/_embeddings.py",
        "scores = stay * scores + step * direction_scores",
        "scores = stay * scores - step * direction_scores",
        "aggregation/test_embeddings.py::test_algorithm_1",
    ),
    Mutation(
        EAGLE, "Algorithm 1: Proj", "aggregation/_embeddings.py",
        "return weights * scale, scores * scale", "return weights, scores",
        "aggregation/test_embeddings.py::test_algorithm_1",
    ),
    Mutation(
        EAGLE, "Algorithm 1: sums of samples as given", "aggregation/_embeddings.py",
        "chosen = shares * _sample_weights", "chosen = _sample_weights",
        "aggregation/test_embeddings.py::test_choice_by_cosine_and_sums_of_samples_as_given",
    ),
    Mutation(
        EAGLE, "ties of similarities", "aggregation/_products.py",
        "best - 100 * np.finfo(best.dtype).eps", "best + 100 * np.finfo(best.dtype).eps",
        "aggregation/test_embeddings.py::test_all_rows_of_a_tie_count",
    ),
    Mutation(
        EAGLE, "objective, Eq. 2", "aggregation/_embeddings.py",
        "np.bincount(pairs.label_of_segment, best, minlength=last - first)",
        "np.bincount(pairs.label_of_segment, -best, minlength=last - first)",
        "aggregation/test_embeddings.py::test_eq_2",
    ),
    Mutation(
        EAGLE, "Algorithm 2: one sample a group", "aggregation/_assignment.py",
        "mask[order[rank < n_first]] = True", "mask[order[rank <= n_first]] = True",
        "aggregation/test_assignment.py::test_every_group_gives_each_label_to_its_best_rows",
    ),
    Mutation(
        EAGLE, "similarity without the background: mean", "aggregation/_embeddings.py",
        "scores -= total[pairs.labels] * self.offsets",
        "scores += total[pairs.labels] * self.offsets",
        "aggregation/test_embeddings.py::test_algorithm_1_in_the_metric_of_the_background",
    ),
    Mutation(
        EAGLE, "similarity without the background: norm", "aggregation/_embeddings.py",
        "total * (offset - total * self.background.mean_square)",
        "total * (offset + total * self.background.mean_square)",
        "aggregation/test_embeddings.py::test_algorithm_1_in_the_metric_of_the_background",
    ),
    Mutation(
        EAGLE, "background: ridge regression", "aggregation/_background.py",
        "(moments / (moments + shrinkage))", "(shrinkage / (moments + shrinkage))",
        "aggregation/test_background.py::test_all_directions_are_ridge_regression",
    ),
    Mutation(
        EAGLE, "soft weights: targets", "aggregation/_embeddings.py",
        "soft * targets.astype(soft.dtype)", "soft / targets.astype(soft.dtype)",
        "aggregation/test_embeddings.py::test_targets_multiply_soft_weights",
    ),
    Mutation(
        EAGLE, "posterior of groups", "aggregation/_posterior.py",
        "np.log(q) - np.log1p(-q) - log_any_other", "np.log(q) - np.log1p(-q) + log_any_other",
        "aggregation/test_posterior.py::test_posterior_of_disjoint_groups_is_exact",
    ),
    Mutation(
        EAGLE, "posterior of groups: the other members", "aggregation/_posterior.py",
        "pairs.segment_sum(none)[pairs.segment_of] - none",
        "pairs.segment_sum(none)[pairs.segment_of] + none",
        "aggregation/test_posterior.py::test_posterior_of_disjoint_groups_is_exact",
    ),
    Mutation(
        EAGLE, "draws from the posterior", "aggregation/_posterior.py",
        "np.floor(n_draws * p + rng.random(len(p)))", "np.floor(n_draws * p - rng.random(len(p)))",
        "aggregation/test_posterior.py::test_draws_are_exact_in_expectation",
    ),
    Mutation(
        EAGLE, "likelihood of the labels of groups", "aggregation/_posterior.py",
        "np.where(has_label, np.log(some), none)", "np.where(has_label, none, np.log(some))",
        "aggregation/test_posterior.py::test_likelihood_asks_for_order_and_distances_of_scores_only",
    ),
    Mutation(
        EAGLE, "expected number of samples", "aggregation/_sharing.py",
        "(1 - share) ** (1 / mean_size)", "(1 - share) ** mean_size",
        "aggregation/test_sharing.py::test_expected_samples_of_independent_labels",
    ),
    Mutation(
        EAGLE, "sharing rates", "aggregation/_sharing.py",
        "above & part) - chance * number", "above & part) + chance * number",
        "aggregation/test_sharing.py::test_rates_are_what_the_definition_says",
    ),
    Mutation(
        EAGLE, "co-attention: mask of mean one", "heads/miml.py",
        "mean = total / bags.indptr.diff()[:, None]", "mean = total * bags.indptr.diff()[:, None]",
        "heads/test_miml.py::test_columns_of_the_mask_sum_to_the_size_of_the_bag",
    ),
    Mutation(
        EAGLE, "co-attention: temperature", "heads/miml.py",
        "/ self.temperature\n", "* self.temperature\n",
        "heads/test_miml.py::test_scores_are_those_of_a_loop_over_bags",
    ),
    Mutation(
        EAGLE, "co-attention: inner products", "heads/miml.py",
        "if by_cosine else instances)", "if by_cosine else -instances)",
        "heads/test_miml.py::test_attention_by_inner_products_reads_the_norms",
    ),
    Mutation(
        EAGLE, "co-attention: masked logits", "heads/miml.py",
        "masked = masked * log_mask.exp()", "masked = masked * (-log_mask).exp()",
        "heads/test_miml.py::test_scores_are_those_of_a_loop_over_bags",
    ),
]  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of paper, kernel or file")
    return parser.parse_args()


def load_libraries():
    """Load what every run needs but the package itself, once for all forks."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "CUDA_VISIBLE_DEVICES": ""}
    for name in ("pytest", "scipy.optimize", "sklearn.ensemble", "skorch", "torch"):
        importlib.import_module(name)


def run_tests(where, tests, timeout=TIMEOUT, first=False):
    """Exit code of pytest in a fork: 0 passed, 1 failed; None: out of time."""
    child = os.fork()
    if not child:
        code = 70
        try:
            os.chdir(where)
            sys.path.insert(0, str(where))
            # The first run compiles the package; a mutant must not leave its code behind.
            sys.dont_write_bytecode = not first
            sink = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            code = int(sys.modules["pytest"].main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
        except BaseException:
            traceback.print_exc()
        finally:  # of what the parent has open, a fork must close nothing
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def try_mutation(where, mutation):
    """What became of a mutation: killed, survived, or what went wrong."""
    file = where / "sklearn_xlc" / mutation.file
    text, stat = file.read_text(encoding="utf-8"), file.stat()
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    code = run_tests(where, [f"tests/{mutation.tests}"])
    file.write_text(text, encoding="utf-8")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as compiled by the first run
    return {0: "survived", 1: "killed", None: "out of time"}.get(code, f"pytest ended with {code}")


def main():
    words = parse_arguments().only
    lines = {m: f"{m.paper} {m.kernel} {m.file}" for m in MUTATIONS}
    mutations = [m for m, line in lines.items() if any(word in line for word in words)]
    load_libraries()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        leave = shutil.ignore_patterns("__pycache__")
        for name in ("sklearn_xlc", "tests"):
            shutil.copytree(ROOT / name, where / name, ignore=leave)
        shutil.copy(ROOT / "pyproject.toml", where)
        tests = sorted({f"tests/{m.tests}" for m in mutations})
        if run_tests(where, tests, FIRST_TIMEOUT, first=True):
            log = (where / "log").read_text(encoding="utf-8")
            sys.exit(f"the tests do not pass on the package as it is:\n{log}")
        print("| paper | kernel | mutant |\n|---|---|---|")
        found = Counter()
        for mutation in mutations:
            result = try_mutation(where, mutation)
            found[mutation.paper, result] += 1
            print(f"| {mutation.paper} | {mutation.kernel} | {result} |", flush=True)
    for (paper, result), number in found.items():
        print(f"{paper}: {number} {result}")
    sys.exit(any(result != "killed" for _, result in found))


if __name__ == "__main__":
    main()
