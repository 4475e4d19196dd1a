"""Hugging Face, safetensors, datasets, Weights & Biases."""

from slurmray.diagnosis.entries import Message

_RESOLVER = "(gaierror|ConnectError|ConnectionError|NameResolutionError|MaxRetryError)"

MESSAGES: tuple[Message, ...] = (
    Message(
        "hub-bad-token",
        "Invalid credentials in Authorization header",
        "huggingface_hub: utils/_http.py, hf_raise_for_status; github.com/joanrod/star-vector/issues/22",
        r"Invalid credentials in Authorization header",
        "The Hugging Face token that the nodes have is wrong, revoked or expired.",
        "Create one on huggingface.co/settings/tokens, set env.HF_TOKEN: null and export it before you submit.",
    ),
    Message(
        "hub-gated",
        "Cannot access gated repo for url https://huggingface.co/meta-llama/x/resolve/main/config.json.",
        "huggingface_hub: utils/_http.py; datasets: datasets/load.py",
        r"Cannot access gated repo for url|' is a gated dataset on the Hub",
        "The model needs an accepted license and a token.",
        "Accept it on the model's page, and set env.HF_TOKEN: null to pass your token on.",
    ),
    Message(
        "hub-path-missing",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
        "'namespace/repo_name': '/models/Qwen2.5-7B-Instruct'. Use `repo_type` argument if needed.",
        "huggingface_hub: utils/_validators.py; Transformers before 4.50: utils/hub.py",
        r"Error: Repo id must (?:be in the form|use alphanumeric chars)|OSError: Incorrect path_or_model_id: ",
        "The folder of a model or data set does not exist where the trainer runs, so the path is taken for a name.",
        "Correct the path, or mount the folder with container.mounts; checks.paths finds that before Ray starts.",
    ),
    Message(
        "hub-dataset-not-found",
        "datasets.exceptions.DatasetNotFoundError: Dataset 'openai/gsm8k2' doesn't exist on the Hub or cannot be accessed.",
        "datasets: datasets/load.py; huggingface_hub: utils/_http.py",
        r"Dataset '[^']+' doesn't exist on the Hub|Couldn't find any data file at "
        r"|Repository Not Found for url: \S+/datasets/",
        "The data set's name is wrong, it is private, or the folder is not where the trainer runs.",
        "Check the name; mount the folder with container.mounts; for a private data set set env.HF_TOKEN: null.",
    ),
    Message(
        "hub-model-not-found",
        "OSError: Qwen/Qwen2.5-0.5B-Instrukt is not a local folder and is not a valid model identifier listed on",
        "Transformers: transformers/utils/hub.py; huggingface_hub: utils/_http.py",
        r"is not a local folder and is not a valid model identifier listed on"
        r"|Repository Not Found for url: (?!\S+/datasets/)",
        "The model's name is wrong, it is private, or the folder is not in the container.",
        "Check the name; mount the folder with container.mounts; for a private model set env.HF_TOKEN: null.",
    ),
    Message(
        "hub-revision-not-found",
        "Revision Not Found for url: https://huggingface.co/Qwen/Qwen2.5-0.5B/resolve/v2/config.json.",
        "huggingface_hub: utils/_http.py; Transformers: utils/hub.py",
        r"Revision Not Found for url: |is not a valid git identifier \(branch name, tag name or commit id\)",
        "The repository has no such branch, tag or commit.",
        "Correct the revision: those that exist are on the page of the model, under Files.",
    ),
    Message(
        "hub-file-missing",
        "OSError: /models/qwen does not appear to have a file named tokenizer_config.json. Checkout "
        "'https://huggingface.co//models/qwen/tree/main' for available files.",
        "Transformers: utils/hub.py, modeling_utils.py; huggingface_hub: utils/_http.py",
        r"OSError: \S+ does not appear to have (?:a file|files) named|OSError: Error no file named "
        r"|EntryNotFoundError: 404 Client Error",
        "The model's folder or repository lacks a file: the download was interrupted, or the folder is a "
        "trainer's own checkpoint.",
        "Compare its files with those of the original model. Download it again, or convert the checkpoint.",
    ),
    Message(
        "hub-rate-limit",
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: "
        "https://huggingface.co/api/datasets/glue/paths-info/main",
        "requests: models.py; httpx: _models.py; huggingface_hub 1.x: utils/_http.py; github.com/allenai/OLMo/issues/550",
        r"429 (?:Client Error: )?Too Many Requests'? for url:? '?https?://\S*(?:huggingface|hf\.co)"
        r"|429 Too Many Requests: you have reached your '",
        "The processes together asked the model hub more often than it allows.",
        "Download in a prepare step or on a login node, to a shared env.HF_HOME, and set env.HF_HUB_OFFLINE: 1.",
    ),
    Message(
        "hub-server-error",
        "huggingface_hub.utils._errors.HfHubHTTPError: 503 Server Error: Service Temporarily Unavailable for url: "
        "https://huggingface.co/timm/vit_large_patch16_384/resolve/main/model.safetensors",
        "requests: models.py; huggingface_hub 1.x: httpx, _models.py; "
        "github.com/huggingface/huggingface_hub/issues/2060 and issues/1516",
        r"Error: 5\d\d Server Error: .* for url: https?://\S*(?:huggingface|hf\.co)"
        r"|Error: Server error '5\d\d .*' for url 'https?://\S*(?:huggingface|hf\.co)",
        "The model hub had a failure of its own.",
        "Submit again when status.huggingface.co shows none, or use the cache with env.HF_HUB_OFFLINE: 1.",
    ),
    Message(
        "hub-timeout",
        "urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. "
        "(read timeout=10)",
        "huggingface_hub 0.x, with urllib3: connectionpool.py; github.com/awslabs/awsome-distributed-ai/issues/445",
        r"(Error|Timeout): \(?HTTPSConnectionPool\(host='\S*(?:huggingface|hf)\.co', port=443\): Read timed out",
        "The model hub did not answer in time, often as many processes ask at once.",
        "Download in a prepare step, or set env.HF_HUB_DOWNLOAD_TIMEOUT and env.HF_HUB_ETAG_TIMEOUT to 60 (seconds).",
        "network",
    ),
    Message(
        "hub-offline",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and "
        "outgoing traffic has been disabled. To enable hf.co look-ups and downloads online, set "
        "'local_files_only' to False.",
        "huggingface_hub: file_download.py and _snapshot_download.py",
        r"and outgoing traffic has been disabled|OfflineModeIsEnabled: Cannot reach",
        "HF_HUB_OFFLINE is set, and the cache lacks a file that the trainer wants.",
        "Download the whole model or data set into the cache that env.HF_HOME names and container.mounts mounts, "
        "or set env.HF_HUB_OFFLINE: 0.",
    ),
    Message(
        "tls-unknown-issuer",
        "urllib3.exceptions.SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
        "certificate in certificate chain (_ssl.c:1007)",
        "OpenSSL, in Python's ssl; github.com/Stability-AI/stable-virtual-camera/issues/23",
        r"Error: .*CERTIFICATE_VERIFY_FAILED\] certificate verify failed: (?!certificate is not yet valid)",
        "The issuer of a server's certificate is unknown in the container: often that of a proxy that inspects "
        "traffic; else the image has no CA certificates.",
        "Mount the site's file of CA certificates with container.mounts, and set env.SSL_CERT_FILE and "
        "env.REQUESTS_CA_BUNDLE to it.",
    ),
    Message(
        "proxy-error",
        "requests.exceptions.ProxyError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded "
        "with url: /Qwen/Qwen3-0.6B/resolve/main/config.json (Caused by ProxyError('Unable to connect to proxy'))",
        "requests: adapters.py; urllib3 2: connectionpool.py",
        r"(requests|urllib3)\.exceptions\.ProxyError: |httpx\.ProxyError: ",
        "The nodes do not reach the proxy that https_proxy names, or it refuses the connection.",
        "Correct env.https_proxy, or remove it.",
        "network",
    ),
    Message(
        "name-resolution-failed",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "glibc: gai_strerror; github.com/yerfor/GeneFace/issues/283",
        rf"{_RESOLVER}: .*Temporary failure in name resolution|{_RESOLVER}: .*Name or service not known"
        rf"|{_RESOLVER}: .*No address associated with hostname",
        "The node could not resolve a host name: compute nodes often have no internet access.",
        "For models and data, download on a login node and set env.HF_HUB_OFFLINE: 1, or set env.https_proxy. "
        "For a node of the job, its name must resolve on the others.",
        "network",
    ),
    Message(
        "hub-unreachable",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them",
        "Transformers: utils/hub.py; huggingface_hub: file_download.py, _snapshot_download.py; datasets: load.py",
        r"We couldn't connect to 'https?://\S+' to load"
        r"|An error happened while trying to locate the files? on the Hub,? and we cannot find"
        r"|ConnectionError: Couldn't reach '[^']+' on the Hub \((?!OfflineMode)",
        "The nodes could not reach the model hub, and the model or data set is not in the cache.",
        "Download it on a login node first, mount the cache and set env.HF_HOME and HF_HUB_OFFLINE: 1; or "
        "set env.https_proxy.",
        "network",
    ),
    Message(
        "hub-xet-failed",
        "RuntimeError: Data processing error: CAS service error : ReqwestMiddleware Error: Request failed after 5 retries",
        "hf_xet before 1.5: src/lib.rs, since 1.5: xet_pkg/src/error.rs; github.com/meta-pytorch/torchforge/pull/109",
        r"Data processing error: CAS service error(?! : IO Error: (?:No space|Disk quota))"
        r"|Data processing error: File Reconstruction Error: CAS Client Error"
        r"|ConnectionError: (?:Network|Server) error: Request (?:middleware )?error: ",
        "A download through Hugging Face's Xet storage failed, e.g. as the nodes do not reach its hosts.",
        "Set env.HF_HUB_DISABLE_XET: 1, or download on a login node.",
        "network",
    ),
    Message(
        "hub-hf-transfer",
        "RuntimeError: An error occurred while downloading using `hf_transfer`. Consider disabling "
        "HF_HUB_ENABLE_HF_TRANSFER for better error handling.",
        "huggingface_hub 0.x: file_download.py",
        r"An error occurred while downloading using .hf_transfer"
        r"|HF_HUB_ENABLE_HF_TRANSFER=1\) but 'hf_transfer' package is not available",
        "hf_transfer, which HF_HUB_ENABLE_HF_TRANSFER turns on, failed or is not installed.",
        "Set env.HF_HUB_ENABLE_HF_TRANSFER: 0: if the network is the cause, the next error names it.",
    ),
    Message(
        "hub-cache-permission",
        "OSError: PermissionError at /cache/hub/.locks/models--Qwen--Qwen2.5-7B/a.lock when downloading "
        "Qwen/Qwen2.5-7B. Check cache directory permissions. Common causes: 1) another user is downloading",
        "Transformers: utils/hub.py",
        r"PermissionError at \S+ when downloading |Permission denied: '\S*/(?:huggingface|hub/\.locks)",
        "The user of the container may not write to the Hugging Face cache: it is another user's, or a file of "
        "root's from an earlier run.",
        "Set env.HF_HOME to a folder of your own that container.mounts mounts, or remove the file that the line names.",
    ),
    Message(
        "model-type-unknown",
        "ValueError: The checkpoint you are trying to load has model type `qwen3` but Transformers does not "
        "recognize this architecture. This could be because of an issue with the checkpoint, or because your",
        "Transformers: models/auto/configuration_auto.py",
        r"but Transformers does not recognize this architecture",
        "The image's Transformers is older than the model.",
        "Use a newer image, or install a newer transformers in container.setup, if the trainer supports it.",
    ),
    Message(
        "model-class-unknown",
        "ValueError: Unrecognized configuration class <class 'transformers.models.qwen2_5_vl.configuration_qwen2_5_vl"
        ".Qwen2_5_VLConfig'> for this kind of AutoModel: AutoModelForCausalLM.",
        "Transformers: models/auto/auto_factory.py",
        r"Unrecognized configuration class <class",
        "The trainer loads the model as another kind than it is, e.g. a multimodal one as a language model; or "
        "Transformers is older than the model.",
        "Choose a model of the kind that the line names, the trainer's option for this kind, or a newer image.",
    ),
    Message(
        "model-type-missing",
        "ValueError: Unrecognized model in /ckpt/global_step_100/actor. Should have a `model_type` key in its "
        "config.json.",
        "Transformers: models/auto/configuration_auto.py",
        r"Should have a .model_type. key in its config\.json",
        "The folder or repository is no Transformers model: e.g. a trainer's own checkpoint, or GGUF files.",
        "Name the folder that has config.json with the weights, or convert the checkpoint (verl: python -m "
        "verl.model_merger merge).",
    ),
    Message(
        "trust-remote-code",
        "ValueError: The repository microsoft/phi-3 contains custom code which must be executed to correctly load the "
        "model. You can inspect the repository content at https://hf.co/microsoft/phi-3 .",
        "Transformers: dynamic_module_utils.py",
        r"ValueError: .{0,300}requires you to execute (?:the \w+ file in that|custom code contained in)"
        r"|ValueError: .{0,300}(?:contains|references) custom code .{0,300}must be executed",
        "The model comes with code of its own, which runs only with your consent.",
        "Read it, then allow it with the trainer's option (verl: data.trust_remote_code=True and "
        "actor_rollout_ref.model.trust_remote_code=True).",
    ),
    Message(
        "tokenizer-not-found",
        "OSError: Can't load tokenizer for '/models/qwen'. If you were trying to load it from "
        "'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
        "Transformers: tokenization_utils_base.py",
        r"Can't load tokenizer for '",
        "The folder or repository has no tokenizer, or a local folder of the same name hides the repository.",
        "Save the tokenizer beside the model, or give the trainer the original model's.",
    ),
    Message(
        "chat-template-missing",
        "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no template "
        "argument was passed!",
        "Transformers: tokenization_utils_base.py",
        r"chat_template is not set and no template argument was passed",
        "The tokenizer has no chat template, e.g. as it is that of a base model.",
        "Use the instruct model's tokenizer, or give the trainer a template.",
    ),
    Message(
        "git-lfs-pointer",
        "OSError: You seem to have cloned a repository without having git-lfs installed. Please install git-lfs and run",
        "Transformers 4: modeling_utils.py",
        r"You seem to have cloned a repository without having git-lfs installed",
        "A weight file is only Git LFS's pointer of a few lines.",
        "Run `git lfs pull` in the model's folder, or download it with `hf download`.",
    ),
    Message(
        "weights-corrupt",
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "safetensors: bindings/python/src/lib.rs; Transformers 4: modeling_utils.py",
        r"Error while deserializing header: |Unable to load weights from pytorch checkpoint file",
        "A weight file is incomplete: an interrupted download or save, a full disk, or only Git LFS's pointer.",
        "Compare its size with the original's, then remove it and download it again; for a checkpoint, resume from "
        "the one before.",
    ),
    Message(
        "accelerate-missing",
        "ImportError: Using `low_cpu_mem_usage=True` or a `device_map` requires Accelerate: `pip install "
        "'accelerate>=0.26.0'`",
        "Transformers 4.46: modeling_utils.py; later: integrations/accelerate.py and quantizers",
        r"Error: (?:Using|Loading) .* requires (?:the latest version of )?`?(?:[Aa]ccelerate|bitsandbytes)",
        "accelerate or bitsandbytes is missing in the image, or is too old.",
        "Install what the line names in the image or in container.setup.",
    ),
    Message(
        "flash-attention-missing",
        "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the "
        "package flash_attn seems to be not installed.",
        "Transformers: modeling_utils.py",
        r"FlashAttention\d has been toggled on, but it cannot be used",
        "The model is loaded with flash attention, which is not installed or does not run on this GPU.",
        "Install flash_attn for the image's PyTorch and CUDA, or choose another attention (attn_implementation: sdpa).",
    ),
    Message(
        "dataset-columns-differ",
        "datasets.exceptions.DatasetGenerationCastError: An error occurred while generating the dataset",
        "datasets: datasets/exceptions.py",
        r"DatasetGenerationCastError: |All the data files must have the same columns",
        "The files of a data set do not have the same columns or types.",
        "The lines after it name the file and the columns. Load that file alone, or write the files with one schema.",
    ),
    Message(
        "dataset-sizes-differ",
        "datasets.exceptions.NonMatchingSplitsSizesError: [{'expected': SplitInfo(name='train', num_bytes=639927, "
        "num_examples=1751), 'recorded': SplitInfo(name='train', num_bytes=639911, num_examples=1750)}]",
        "datasets: datasets/utils/info_utils.py",
        r"NonMatchingSplitsSizesError: ",
        "The data set has other sizes than its card says: an incomplete or outdated cache, or only a part was loaded.",
        "Download it again (download_mode='force_redownload'), or load it with verification_mode='no_checks'.",
    ),
    Message(
        "parquet-corrupt",
        "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is "
        "not a parquet file.",
        "Apache Arrow: cpp/src/parquet/file_reader.cc",
        r"Parquet magic bytes not found in footer|Parquet file size is 0 bytes",
        "A file that should be Parquet is incomplete, empty or another type: an interrupted write, or Git LFS's pointer.",
        "Write or download it again, and start the trainer only when that has ended.",
    ),
    Message(
        "dataset-not-generated",
        "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
        "datasets: datasets/builder.py",
        r"DatasetGenerationError: An error occurred while generating the dataset",
        "A file of a data set could not be read; the error above it says why.",
        "Read the error above it.",
        is_follow_up=True,
    ),
    Message(
        "wandb-no-key",
        "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "Weights & Biases before 0.23.1: wandb/sdk/wandb_login.py; later: wandb/sdk/lib/wbauth/authenticate.py",
        r"api_key not configured \(no-tty\)|No API key configured\. Use .wandb login",
        "Weights & Biases has no key on the nodes.",
        "Set env.WANDB_API_KEY: null and export it before you submit, or env.WANDB_MODE: offline.",
    ),
    Message(
        "wandb-permission",
        'wandb.errors.errors.CommError: failed to upsert bucket: returned error 403 Forbidden: {"errors":[{"message":'
        '"permission denied","path":["upsertBucket"],"extensions":{"code":"PERMISSION_ERROR"}}],"data":',
        "Weights & Biases: core/internal/runupserter; github.com/wandb/wandb/issues/7959, 8609, 10497; "
        "github.com/qsh-zh/DiffFlow/issues/1",
        r"failed to upsert bucket: returned error 40[134]|Error uploading run: returned error 40[134]"
        r"|CommError: permission denied"
        r"|Permission denied, ask the project owner to grant you access"
        r"|you do not have permission to access the requested resource",
        "The Weights & Biases entity or project does not exist, or the key may not write to it or is not valid.",
        "Correct the entity and project of the trainer (env.WANDB_ENTITY), or the key (env.WANDB_API_KEY).",
    ),
    Message(
        "wandb-timeout",
        "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
        "Weights & Biases before 0.28.2: wandb/sdk/wandb_init.py; later: core/internal/runupserter/runupdateerror.go",
        r"Error: Run initialization has timed out after |CommError: Timed out (?:initializing run|while retrying): ",
        "The nodes did not reach the Weights & Biases server in time: often they have no internet access.",
        "Set env.WANDB_MODE: offline and run `wandb sync` on a login node later, or set env.https_proxy.",
        "network",
    ),
    Message(
        "wandb-resume",
        "wandb.errors.UsageError: resume='must' but run (8squmyay) doesn't exist",
        "Weights & Biases before 0.14: wandb/sdk/internal/sender.py; later: core/internal/runbranch/resume.go; "
        "github.com/wandb/wandb/issues/4789, 11348",
        r"resume='must' but run \(|The value 'must' is not a valid option for resuming (?:a|the) run \(",
        "The run that should be resumed does not exist in that entity and project.",
        "Correct WANDB_RUN_ID, the entity and the project, or use resume='allow' (env.WANDB_RESUME: allow).",
    ),
)
