"""What has to be reached: figures that public planners reached on the same traces, and our own bars.

The traces are those of ``eplb.traces.generate``, balance is the mean over layers of the mean over slices of max / mean.
Planned on the first window, judged on the next. Planners: deepseek-ai/EPLB d52c72d, vLLM 0.33.0, SGLang 0.5.23 and
vllm-ascend 182b75e (policies 1 to 3), on all slices of the window and on its last half; the best of them counts.
"""

from eplb import Cluster

TIE = 0.002

CLUSTERS = {
    "576on288": Cluster(288, 2),
    "288on288": Cluster(288, 1),
    "288on32": Cluster(32, 9),
    "288on72": Cluster(72, 4),
    "20on4": Cluster(4, 5),
}

BEST_PUBLIC = {
    ("paper", "576on288"): 1.3780,
    ("paper", "288on288"): 4.0433,
    ("paper", "288on32"): 1.0964,
    ("paper", "288on72"): 1.1777,
    ("mild", "576on288"): 1.3453,
    ("mild", "288on288"): 3.6233,
    ("mild", "288on32"): 1.0743,
    ("mild", "288on72"): 1.1372,
    ("domain_shift", "576on288"): 1.2525,
    ("domain_shift", "288on288"): 3.2131,
    ("domain_shift", "288on32"): 1.0659,
    ("domain_shift", "288on72"): 1.1193,
    ("correlated", "576on288"): 1.6885,
    ("correlated", "288on288"): 3.7008,
    ("correlated", "288on32"): 1.2270,
    ("correlated", "288on72"): 1.4790,
    ("small", "20on4"): 1.0401,
}

PAPER_FIT, PAPER_NEXT = 1.12, 1.23
PINNED_FIT, PINNED_NEXT = 1.15, 1.26
REPLAN = {8: 1.185, 32: 1.16, 96: 1.145}
VLLM_FIT, VLLM_NEXT = 1.3148, 1.4049
SECONDS, FAST_SECONDS = 3.0, 0.3
