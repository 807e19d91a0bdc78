# What Assay and its tests import from the package itself, for the type checker. The package's own
# __init__ imports all of its models: to bind them takes a fifth of the check's time.
__version__: str
from transformers.cache_utils import Cache as Cache
from transformers.cache_utils import DynamicCache as DynamicCache
from transformers.configuration_utils import PreTrainedConfig as PreTrainedConfig
from transformers.configuration_utils import PretrainedConfig as PretrainedConfig
from transformers.generation.configuration_utils import GenerationConfig as GenerationConfig
from transformers.generation.logits_process import MinPLogitsWarper as MinPLogitsWarper
from transformers.modeling_utils import PreTrainedModel as PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING as CONFIG_MAPPING
from transformers.models.auto.configuration_auto import AutoConfig as AutoConfig
from transformers.models.auto.image_processing_auto import AutoImageProcessor as AutoImageProcessor
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING as MODEL_FOR_CAUSAL_LM_MAPPING,
)
from transformers.models.auto.modeling_auto import AutoModel as AutoModel
from transformers.models.auto.modeling_auto import AutoModelForCausalLM as AutoModelForCausalLM
from transformers.models.auto.modeling_auto import (
    AutoModelForImageTextToText as AutoModelForImageTextToText,
)
from transformers.models.auto.processing_auto import AutoProcessor as AutoProcessor
from transformers.models.auto.tokenization_auto import AutoTokenizer as AutoTokenizer
from transformers.models.clip.configuration_clip import CLIPConfig as CLIPConfig
from transformers.models.clip.modeling_clip import CLIPModel as CLIPModel
from transformers.models.clip.processing_clip import CLIPProcessor as CLIPProcessor
from transformers.models.gemma.tokenization_gemma import GemmaTokenizer as GemmaTokenizer
from transformers.models.gpt2.configuration_gpt2 import GPT2Config as GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel as GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Model as GPT2Model
from transformers.models.gpt_neox.configuration_gpt_neox import GPTNeoXConfig as GPTNeoXConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXForCausalLM as GPTNeoXForCausalLM
from transformers.models.granite.configuration_granite import GraniteConfig as GraniteConfig
from transformers.models.granite.modeling_granite import GraniteForCausalLM as GraniteForCausalLM
from transformers.models.idefics3.configuration_idefics3 import Idefics3Config as Idefics3Config
from transformers.models.llama.configuration_llama import LlamaConfig as LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM as LlamaForCausalLM
from transformers.models.mistral.configuration_mistral import MistralConfig as MistralConfig
from transformers.models.mistral.modeling_mistral import MistralForCausalLM as MistralForCausalLM
from transformers.models.qwen2.configuration_qwen2 import Qwen2Config as Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM as Qwen2ForCausalLM
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import (
    Qwen2_5_VLConfig as Qwen2_5_VLConfig,
)
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLConfig as Qwen2VLConfig
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config as Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM as Qwen3ForCausalLM
from transformers.models.smollm3.configuration_smollm3 import SmolLM3Config as SmolLM3Config
from transformers.models.smollm3.modeling_smollm3 import SmolLM3ForCausalLM as SmolLM3ForCausalLM
from transformers.models.smolvlm.configuration_smolvlm import SmolVLMConfig as SmolVLMConfig
from transformers.optimization import (
    get_constant_schedule_with_warmup as get_constant_schedule_with_warmup,
)
from transformers.optimization import (
    get_cosine_schedule_with_warmup as get_cosine_schedule_with_warmup,
)
from transformers.optimization import (
    get_cosine_with_min_lr_schedule_with_warmup as get_cosine_with_min_lr_schedule_with_warmup,
)
from transformers.optimization import (
    get_linear_schedule_with_warmup as get_linear_schedule_with_warmup,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase as PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import (
    PreTrainedTokenizerFast as PreTrainedTokenizerFast,
)
from transformers.trainer_callback import TrainerCallback as TrainerCallback
from transformers.utils.quantization_config import GgufConfig as GgufConfig
