"""Hydra, OmegaConf, Python and the trainer's command line."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "hydra-key-unknown",
        "Could not override 'actor_rollout_ref.actor.fsdp_config.grad_offload'.",
        "Hydra 1.3: hydra/_internal/config_loader_impl.py; github.com/verl-project/verl/issues/1080",
        r"Could not override '",
        "The trainer's configuration has no such key: it is misspelt, or another version of the trainer has it.",
        "Correct the key after the configuration of the installed version. Only if the key is meant to be new, put + "
        "before it.",
    ),
    Message(
        "hydra-key-exists",
        "Could not append to config. An item is already at 'trainer.nnodes'.",
        "Hydra 1.3: hydra/_internal/config_loader_impl.py",
        r"Could not append to config\. An item is already at",
        "An argument with + before it names a key that the trainer's configuration already has.",
        "Remove the +, or write ++ to set the key in either case.",
    ),
    Message(
        "hydra-key-not-deleted",
        "Could not delete from config. 'trainer.zz' does not exist.",
        "Hydra 1.3: hydra/_internal/config_loader_impl.py",
        r"Could not delete from config\. '",
        "An argument with ~ before it names a key that the trainer's configuration lacks.",
        "Remove the argument, or correct the key.",
    ),
    Message(
        "hydra-syntax",
        "mismatched input '=' expecting <EOF>",
        "Hydra 1.3: hydra/core/override_parser/overrides_parser.py, run with such arguments",
        # Other parsers made with ANTLR, e.g. of LaTeX in rewards, print the same words after "line 1:5 ".
        r"missing EQUAL at '|(?<!\d )no viable alternative at input '|(?<!\d )mismatched input '"
        r"|(?<!\d )token recognition error at: |LexerNoViableAltException: |Error parsing override '"
        r"|hydra\.cc/docs/\S+/override_grammar|hydra\.cc/docs/\S+/command_line_syntax",
        "Hydra cannot parse an argument: a space, comma, colon or bracket in a value, or an argument without =.",
        "Put the value in quotes for Hydra, within those of the shell: 'key=\"a, b\"'. Lists are 'key=[a,b]'.",
    ),
    Message(
        "hydra-ambiguous-value",
        "Ambiguous value for argument 'data.path=/a,b'",
        "Hydra 1.3: hydra/_internal/config_loader_impl.py",
        r"Ambiguous value for argument '",
        "A value with a comma could be a list, a text or a sweep.",
        "Write 'key=[a,b]' for a list, or quote the comma for a text: 'key=\"a,b\"'.",
    ),
    Message(
        "hydra-config-not-found",
        "Cannot find primary config 'ppo_trainer'. Check that it's in your config search path.",
        "Hydra 1.3: hydra/_internal/defaults_list.py and config_loader_impl.py",
        r"Cannot find primary config '|Primary config directory not found|Primary config module '"
        r"|In '[^']+': Could not find '|In '[^']+': Could not load '",
        "Hydra found no configuration of that name, or not its folder: --config-name or --config-path is wrong, or the "
        "folder is not in the container.",
        "Correct them: --config-path is relative to the trainer's Python file. Mount the folder with container.mounts.",
    ),
    Message(
        "omegaconf-value-missing",
        "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: trainer.path",
        "OmegaConf 2.3: omegaconf/basecontainer.py",
        r"MissingMandatoryValue: ",
        "The configuration has ??? for a value that must be given.",
        "Give it in the trainer's arguments: the line names the key.",
    ),
    Message(
        "omegaconf-key-unknown",
        "omegaconf.errors.ConfigAttributeError: Key 'nope' is not in struct",
        "OmegaConf 2.3: omegaconf/dictconfig.py",
        r"ConfigAttributeError: |ConfigKeyError: ",
        "The trainer reads a key that its configuration lacks: often the configuration is of another version.",
        "Use the configuration that belongs to the installed version, or add the key.",
    ),
    Message(
        "omegaconf-interpolation",
        "omegaconf.errors.InterpolationKeyError: Interpolation key 'nokey.a' not found",
        "OmegaConf 2.3: omegaconf/base.py; of a variable: omegaconf/resolvers/oc/__init__.py, "
        "github.com/jasonppy/VoiceCraft/issues/152",
        r"InterpolationKeyError: |Interpolation key '[^']+' not found"
        r"|raised while resolving interpolation: \"Environment variable '",
        "A value of the configuration refers with ${...} to a key or an environment variable that does not exist.",
        "Set that key, or the value itself; a variable in env, e.g. env.NAME: null for the value at submission. In a "
        "shell, ${...} must be in single quotes.",
    ),
    Message(
        "omegaconf-wrong-type",
        "Value 'x' of type 'str' could not be converted to Integer",
        "OmegaConf 2.3: omegaconf/nodes.py",
        r"Value '.*' of type '\w+' could not be converted to |Value '.*' is not a valid bool \(type "
        r"|Value '.*' is incompatible with type hint '|Value '.*' of type '\w+' is incompatible with type hint '",
        "A value of the configuration has the wrong type.",
        "Correct it: the lines after it name the key.",
    ),
    Message(
        "argument-unknown",
        "train.py: error: unrecognized arguments: --micro-batch 4",
        "Python: argparse; Click 8; Transformers: hf_argparser.py",
        r": error: unrecognized arguments: |[Nn]o such option:? '?-|are not used by the HfArgumentParser",
        "The program has no such option: it is misspelt, or another version of the program has it.",
        "Compare with --help of the installed version.",
    ),
    Message(
        "argument-missing",
        "train.py: error: the following arguments are required: --model",
        "Python: argparse; Click 8",
        r": error: the following arguments are required: |Error: Missing (?:option|argument|parameter) '",
        "The program lacks an argument. In a text, a line whose end lacks \\ ends the command.",
        "Give the argument that the line names.",
    ),
    Message(
        "argument-invalid",
        "train.py: error: argument --steps: invalid int value: 'ten'",
        "Python: argparse; Click 8",
        r": error: argument \S+: (?:invalid choice: |invalid \w+ value: |expected )|Error: Invalid value for '",
        "The program does not accept the value of an argument.",
        "Correct it: the line names the argument.",
    ),
    Message(
        "script-not-found",
        "python3: can't open file '/code/train.py': [Errno 2] No such file or directory",
        "Python: Modules/main.c",
        r": can't open file '.*': \[Errno 2\]",
        "The Python file does not exist where the trainer runs.",
        "A relative path begins in container.workdir, else in the submit folder. Mount other folders with "
        "container.mounts.",
    ),
    Message(
        "module-not-found",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "Python; of python -m: Lib/runpy.py; Transformers: dynamic_module_utils.py, "
        "github.com/deepseek-ai/DeepSeek-MoE/issues/24",
        r"ModuleNotFoundError: No module named '[^']+'|/python[\d.]*: No module named "
        r"|requires the following packages that were not found in your environment: ",
        "A Python module is not where the trainer runs.",
        "Install it in the image or the virtual environment of `setup`, or in container.setup.",
    ),
    Message(
        "module-shadowed",
        "AttributeError: partially initialized module 'datasets' has no attribute 'load_dataset' (most likely due to a "
        "circular import)",
        "Python: Objects/moduleobject.c and Python/ceval.c",
        r"partially initialized module '|\(consider renaming '",
        "Modules import each other, often as a file or folder of the working directory has the name of a package.",
        "Rename that file or folder, or start the trainer in another directory.",
    ),
    Message(
        "import-name",
        "ImportError: cannot import name 'LlamaFlashAttention2' from 'transformers.models.llama.modeling_llama' "
        "(/usr/lib/python3/dist-packages/transformers/models/llama/modeling_llama.py)",
        "Python: Python/ceval.c; github.com/deepseek-ai/DeepSeek-VL2/issues/45",
        r"ImportError: cannot import name '[^']+' from '(?!.*\(consider renaming ')"
        r"|^cannot import name '[^']+' from '(?!.*\(consider renaming ')",
        "Two packages do not fit: one imports what the other does not have in the installed version.",
        "Install versions that fit, e.g. those that the trainer's requirements name, in the image or container.setup.",
    ),
    Message(
        "transformers-not-imported",
        "ModuleNotFoundError: Could not import module 'AutoProcessor'. Are this object's requirements defined correctly?",
        "Transformers: utils/import_utils.py; before: github.com/OpenRLHF/OpenRLHF/issues/355",
        r"Could not import module '\w+'\. Are this object's requirements|Error: Failed to import transformers\.",
        "Transformers could not load a part of itself, usually as a package does not fit.",
        "Look at the exception above it, or at the line below it.",
        is_follow_up=True,
    ),
    Message(
        "keyword-unexpected",
        "TypeError: LLM.__init__() got an unexpected keyword argument 'logprobs_mode'",
        "Python: Python/ceval.c; of Ray's calls: Lib/inspect.py",
        r"TypeError: (?:\S+ )?got an unexpected keyword argument '",
        "Two packages do not fit: one calls the other with an argument that the installed version lacks. Or a key of "
        "the trainer's configuration is misspelt.",
        "Install versions that fit, or correct the key.",
    ),
    Message(
        "package-version-conflict",
        "pkg_resources.ContextualVersionConflict: (numpy 2.1.0 (/opt/lib/python3.11/site-packages), "
        "Requirement.parse('numpy<2.0'), {'trainer'})",
        "setuptools: pkg_resources/__init__.py; Python: importlib/metadata; Transformers: utils/versions.py, "
        "github.com/YanWenKun/Hunyuan3D-2-WinPortable/issues/105",
        r"pkg_resources\.(?:\w+\.)?(?:DistributionNotFound|ContextualVersionConflict|VersionConflict): "
        r"|No package metadata was found for |Error: \S+ is required for a normal functioning of this module",
        "A package is missing, or has another version than a program requires.",
        "Install the version that the line names in the image or in container.setup.",
    ),
    Message(
        "numpy-abi",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 "
        "from PyObject",
        "Cython: Utility/ImportExport.c; NumPy: _core/code_generators/generate_numpy_api.py and __init__.pxd",
        r"ValueError: numpy\.\w+ size changed, may indicate|ImportError: numpy\._?core\.multiarray failed to import",
        "A package was compiled for another major version of NumPy.",
        "Install a version of that package for this NumPy, or `pip install 'numpy<2'` in container.setup if it is for "
        "NumPy 1.",
    ),
    Message(
        "numpy-name-removed",
        "AttributeError: module 'numpy' has no attribute 'bool'.",
        "NumPy: numpy/__init__.py, 1.24 and 2.0",
        r"AttributeError: module 'numpy' has no attribute '|was removed in the NumPy 2\.0 release",
        "A package uses a name that this version of NumPy no longer has.",
        "Upgrade that package, or install an older NumPy ('numpy<2', or 'numpy<1.24') in container.setup.",
    ),
    Message(
        "protobuf-too-new",
        "TypeError: Descriptors cannot be created directly.",
        "protobuf 4: python/message.c, called by google/protobuf/descriptor.py",
        r"Descriptors cannot (?:not )?be created directly",
        "A package has code that was generated by an older protoc than the installed protobuf accepts.",
        "Upgrade that package, or set env.PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION: python, which is slower.",
    ),
    Message(
        "protobuf-other-version",
        "google.protobuf.runtime_version.VersionError: Detected incompatible Protobuf Gencode/Runtime versions when "
        "loading protos/brand_inference.proto: gencode 5.29.2 runtime 5.27.2.",
        "protobuf 5: google/protobuf/runtime_version.py; "
        "github.com/rules-proto-grpc/rules_proto_grpc/issues/404",
        r"Detected (?:incompatible|mismatched) Protobuf Gencode/Runtime ",
        "A package has code that was generated for another version of protobuf than the installed one (runtime).",
        "Install protobuf in the version that the line gives for gencode, in the image or in container.setup.",
    ),
    Message(
        "yaml-syntax",
        "yaml.scanner.ScannerError: mapping values are not allowed here",
        "PyYAML 6: yaml/scanner.py and yaml/parser.py",
        r"yaml\.scanner\.ScannerError|yaml\.parser\.ParserError|yaml\.constructor\.ConstructorError",
        "A YAML file that the trainer reads has a mistake.",
        "The lines after it name the file, the line and the column.",
    ),
    Message(
        "permission-denied",
        "PermissionError: [Errno 13] Permission denied: '/ckpt/global_step_100'",
        "Python: errno 13",
        r"PermissionError: \[Errno 13\] Permission denied(?!: '\S*/(?:huggingface|hub/\.locks))",
        "The user in the container may not read or write that file.",
        "Change its mode or owner, or write to a folder of your own that container.mounts mounts. container.user says "
        "who the user in the container is.",
    ),
    Message(
        "file-not-found",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.parquet'",
        "Python: errno 2",
        # Without a name it is the socket of a process that has ended; /psm_ is Python's shared memory.
        r"FileNotFoundError: \[Errno 2\] No such file or directory: (?!'/psm_)(?!.*\.triton/)",
        "A file or folder does not exist where the trainer runs: the path is wrong, or it is not in the container.",
        "Correct the path, or mount its folder with container.mounts; checks.paths finds that before Ray starts.",
    ),
    Message(
        "not-utf-8",
        "UnicodeDecodeError: 'ascii' codec can't decode byte 0xe4 in position 12: ordinal not in range(128)",
        "Python: Objects/exceptions.c",
        r"UnicodeDecodeError: '[^']+' codec can't decode byte",
        "A file is read as text in an encoding that it does not have: it is compressed or binary, or, with 'ascii', "
        "the container has no UTF-8 locale.",
        "Check the file. With 'ascii', set env.PYTHONUTF8: 1.",
    ),
    Message(
        "recursion",
        "RecursionError: maximum recursion depth exceeded",
        "Python: Python/ceval.c",
        r"RecursionError: maximum recursion depth exceeded",
        "A function calls itself without end, often as two versions of packages do not fit.",
        "Look at the functions that repeat in the traceback.",
    ),
    Message(
        "json-decode",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "Python: Lib/json/decoder.py",
        r"JSONDecodeError: .*: line \d+ column \d+",
        "What was read is no JSON: an empty or cut off file, or the reply of a service that failed.",
        "Look at the file or the service that the traceback names.",
        is_follow_up=True,
    ),
    Message(
        "script-windows-line-ends",
        "run.sh: line 2: $'\\r': command not found",
        "Bash 5.2, run with such a script; GNU coreutils: env",
        r"\$'\\r': command not found|\^M: bad interpreter|env: .\w+\\r.: No such file or directory",
        "The script has Windows line ends.",
        "Convert it: sed -i 's/\\r$//' FILE.",
    ),
    Message(
        "script-interpreter-missing",
        "bash: ./run.sh: /opt/conda/bin/python: bad interpreter: No such file or directory",
        "Bash: execute_cmd.c; of 5.2: run with such a script",
        r": (?<!\^M: )bad interpreter: |cannot execute: required file not found",
        "The program in the first line of a script does not exist in the container, or the script has Windows line "
        "ends. Virtual environments that were copied or made on another machine lead to that.",
        "Call it with its interpreter (python3 SCRIPT, bash SCRIPT), or create the virtual environment again.",
    ),
    Message(
        "command-not-found",
        "bash: line 3: torchrun: command not found",
        "Bash and dash, run with such commands; slurmray, for the trainer",
        r"(bash: |: line \d+: )(?:line \d+: )?(?!(?:nvidia-smi|rocm-smi|module|ml|tput): )[\w./+-]+: command not found"
        r"|\bsh: \d+: (?!nvidia-smi|rocm-smi)\S+: not found|slurmray: [^:]{1,200}: No such file or directory",
        "A program is not installed where the command runs, or not in PATH.",
        "Check its name. `setup` runs on the host, `run` and container.setup in the container: install the program there, "
        "or write its full path.",
    ),
    Message(
        "script-not-executable",
        "bash: line 1: ./run.sh: Permission denied",
        "Bash and dash, run with such a script",
        r"(bash: |: line \d+: )(?:line \d+: )?(?!\S+/\.)\S+: Permission denied|\bsh: \d+: (?!\S+/\.)\S+: Permission denied",
        "A script is not executable or is on a file system mounted with noexec, or the shell may not write a file.",
        "Call it with bash, or run chmod +x.",
    ),
    Message(
        "shell-variable-unset",
        "run.sh: line 4: CHECKPOINT: unbound variable",
        "Bash: error.c, with set -u",
        r": \$?\w+: unbound variable",
        "A script with set -u uses a variable that has no value.",
        "Set it in env, e.g. env.NAME: null for the value at submission.",
    ),
    Message(
        "shell-syntax",
        "bash: -c: line 1: syntax error near unexpected token `('",
        "Bash and dash, run with such scripts",
        r": syntax error near unexpected token|: syntax error: unexpected end of file"
        r"|unexpected EOF while looking for matching|\bsh: \d+: Syntax error: ",
        "A command or script has a mistake for the shell: a missing quote, fi or done, or an unquoted bracket.",
        "Correct it: the line after it shows the place. `run` as a list needs no quotes.",
    ),
)
