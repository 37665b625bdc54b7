//! Who serves models, as data.

use std::sync::LazyLock;

use crate::endpoint::AuthScheme;
use crate::model::{CallIdRule, Compat, SchemaSupport, ThinkingSwitch};
use crate::wire::WireFormat;

/// Somebody who serves models: a wire at an address, with a kind of key and with quirks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Host {
    /// The name in `provider/model`.
    pub id: &'static str,
    /// Other names by which people know it.
    pub aliases: &'static [&'static str],
    /// The wire that its models are asked by, unless another one is wanted.
    pub wire: WireFormat,
    /// The wire of the servers that imitate this host, asked when the address isn't the host's own.
    pub imitated_by: Option<WireFormat>,
    /// The address; `None` where each customer has an own one.
    pub base_url: Option<&'static str>,
    /// The wires that it serves at another address, or with another kind of key. The catalog says which models are asked
    /// by them; a model is asked by any wire that the caller names.
    pub other_wires: Vec<OtherWire>,
    /// Environment variables that replace the address, in the order in which they are tried. Before them comes the id in
    /// upper case with `_BASE_URL` behind it, as in `OPENAI_BASE_URL`.
    pub base_url_variables: &'static [&'static str],
    /// The path of an address in those variables that has none, where it is not the wire's usual one.
    pub path: Option<&'static str>,
    /// Environment variables that hold a key, in the order in which they are tried, and how each one's key is sent.
    /// The first one says how a key is sent that comes from elsewhere.
    pub keys: &'static [(&'static str, AuthScheme)],
    /// Whether it runs on the user's own machine and needs no key.
    pub local: bool,
    /// What it deviates in from the wire.
    pub compat: Compat,
    /// The same for models whose id begins with a prefix.
    pub model_compat: Vec<(&'static str, Compat)>,
}

/// A wire that a host serves apart from its usual one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OtherWire {
    /// The wire.
    pub wire: WireFormat,
    /// The address below which it is served.
    pub base_url: &'static str,
    /// How a key is sent, if not as to the usual wire.
    pub scheme: Option<AuthScheme>,
}

impl Host {
    /// The host of this id or alias.
    pub fn find(name: &str) -> Option<&'static Host> {
        hosts().iter().find(|host| host.names().any(|known| known == name))
    }

    /// What it deviates in from the wire when it serves this model.
    pub fn compat_for(&self, model: &str) -> &Compat {
        let special = self.model_compat.iter().find(|(prefix, _)| model.starts_with(prefix));
        special.map_or(&self.compat, |(_, compat)| compat)
    }

    /// Where it serves this wire: at an address of the wire's own, or at the usual one.
    pub fn base_url_for(&self, wire: &WireFormat) -> Option<&'static str> {
        self.other_wire(wire).map(|other| other.base_url).or(self.base_url)
    }

    /// How a key goes along with this wire that goes along with the usual one by `scheme`.
    pub(crate) fn scheme_for(&self, wire: &WireFormat, scheme: AuthScheme) -> AuthScheme {
        self.other_wire(wire).and_then(|other| other.scheme).unwrap_or(scheme)
    }

    fn other_wire(&self, wire: &WireFormat) -> Option<&OtherWire> {
        self.other_wires.iter().find(|other| other.wire == *wire)
    }

    /// Whether this text is one of its own addresses.
    pub(crate) fn has_address(&self, text: &str) -> bool {
        let own = self.base_url.into_iter().chain(self.other_wires.iter().map(|other| other.base_url));
        own.into_iter().any(|own| own.trim_end_matches('/') == text.trim_end_matches('/'))
    }

    /// The id and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.id).chain(self.aliases.iter().copied())
    }

    /// All environment variables that replace the address.
    pub(crate) fn all_base_url_variables(&self) -> Vec<String> {
        let own = format!("{}_BASE_URL", self.id.to_ascii_uppercase());
        std::iter::once(own).chain(self.base_url_variables.iter().map(|name| (*name).to_owned())).collect()
    }
}

/// All hosts that are known by name. Addresses and variables are those of the hosts' own documentation.
pub fn hosts() -> &'static [Host] {
    &HOSTS
}

use AuthScheme::{Bearer, Header};

static HOSTS: LazyLock<Vec<Host>> = LazyLock::new(|| {
    vec![
        Host {
            id: "openai",
            wire: WireFormat::OpenaiResponses,
            imitated_by: Some(WireFormat::OpenaiCompletions),
            base_url: Some("https://api.openai.com/v1"),
            base_url_variables: &["OPENAI_API_BASE"],
            keys: &[("OPENAI_API_KEY", Bearer)],
            compat: Compat { prompt_cache_retention: true, ..openai() },
            ..host()
        },
        Host {
            id: "anthropic",
            aliases: &["claude"],
            wire: WireFormat::AnthropicMessages,
            base_url: Some("https://api.anthropic.com/v1"),
            keys: &[("ANTHROPIC_API_KEY", Header("x-api-key")), ("ANTHROPIC_AUTH_TOKEN", Bearer)],
            ..host()
        },
        Host {
            id: "google",
            aliases: &["gemini"],
            wire: WireFormat::GoogleGenerativeAi,
            base_url: Some("https://generativelanguage.googleapis.com/v1beta"),
            other_wires: vec![with_key(
                WireFormat::OpenaiCompletions,
                "https://generativelanguage.googleapis.com/v1beta/openai",
                Bearer,
            )],
            base_url_variables: &["GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"],
            keys: &[
                ("GEMINI_API_KEY", Header("x-goog-api-key")),
                ("GOOGLE_API_KEY", Header("x-goog-api-key")),
                ("GOOGLE_GENERATIVE_AI_API_KEY", Header("x-goog-api-key")),
            ],
            ..host()
        },
        // The address is the resource's, as in https://RESOURCE.openai.azure.com; the model is the deployment's name.
        Host {
            id: "azure",
            aliases: &["azure-openai"],
            wire: WireFormat::OpenaiResponses,
            base_url_variables: &["AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"],
            path: Some("/openai/v1"),
            keys: &[("AZURE_OPENAI_API_KEY", Header("api-key"))],
            compat: openai(),
            model_compat: vec![(
                "deepseek",
                Compat {
                    reasoning_field: Some("reasoning_content"),
                    reasoning_field_always: true,
                    ..Compat::default()
                },
            )],
            ..host()
        },
        Host {
            id: "openrouter",
            base_url: Some("https://openrouter.ai/api/v1"),
            keys: &[("OPENROUTER_API_KEY", Bearer)],
            compat: openrouter(),
            model_compat: vec![("anthropic/", Compat { cache_control: true, ..openrouter() })],
            ..host()
        },
        Host {
            id: "groq",
            base_url: Some("https://api.groq.com/openai/v1"),
            keys: &[("GROQ_API_KEY", Bearer)],
            compat: Compat { max_completion_tokens: true, reasoning_field: Some("reasoning"), ..Compat::default() },
            ..host()
        },
        Host {
            id: "cerebras",
            base_url: Some("https://api.cerebras.ai/v1"),
            keys: &[("CEREBRAS_API_KEY", Bearer)],
            compat: Compat { max_completion_tokens: true, reasoning_field: Some("reasoning"), ..Compat::default() },
            ..host()
        },
        Host {
            id: "xai",
            aliases: &["grok", "x-ai"],
            base_url: Some("https://api.x.ai/v1"),
            keys: &[("XAI_API_KEY", Bearer)],
            compat: Compat {
                reasoning_field: Some("reasoning_content"),
                affinity_header: Some("x-grok-conv-id"),
                ..Compat::default()
            },
            ..host()
        },
        // Counts tokens in every stream without being asked, and refuses fields that it doesn't know.
        Host {
            id: "mistral",
            base_url: Some("https://api.mistral.ai/v1"),
            keys: &[("MISTRAL_API_KEY", Bearer)],
            compat: Compat {
                stream_usage: false,
                seed_field: "random_seed",
                tool_result_name: true,
                call_id: CallIdRule::Exactly(9),
                ..Compat::default()
            },
            ..host()
        },
        Host {
            id: "deepseek",
            base_url: Some("https://api.deepseek.com"),
            other_wires: vec![at(WireFormat::AnthropicMessages, "https://api.deepseek.com/anthropic/v1")],
            keys: &[("DEEPSEEK_API_KEY", Bearer)],
            compat: Compat {
                thinking_switch: Some(ThinkingSwitch::Thinking),
                reasoning_field: Some("reasoning_content"),
                reasoning_field_always: true,
                output_schema: SchemaSupport::None,
                ..Compat::default()
            },
            ..host()
        },
        Host {
            id: "together",
            aliases: &["togetherai"],
            base_url: Some("https://api.together.ai/v1"),
            keys: &[("TOGETHER_API_KEY", Bearer)],
            compat: Compat { top_k: true, output_schema: SchemaSupport::Plain, ..Compat::default() },
            ..host()
        },
        Host {
            id: "fireworks",
            aliases: &["fireworks-ai"],
            base_url: Some("https://api.fireworks.ai/inference/v1"),
            keys: &[("FIREWORKS_API_KEY", Bearer)],
            compat: Compat {
                reasoning_field: Some("reasoning_content"),
                affinity_header: Some("x-session-affinity"),
                top_k: true,
                ..Compat::default()
            },
            ..host()
        },
        Host {
            id: "huggingface",
            aliases: &["hf"],
            base_url: Some("https://router.huggingface.co/v1"),
            keys: &[("HF_TOKEN", Bearer)],
            ..host()
        },
        // Subscribers of its coding plan have another address: https://api.z.ai/api/coding/paas/v4.
        Host {
            id: "zai",
            aliases: &["z-ai", "zhipu"],
            base_url: Some("https://api.z.ai/api/paas/v4"),
            other_wires: vec![at(WireFormat::AnthropicMessages, "https://api.z.ai/api/anthropic/v1")],
            keys: &[("ZAI_API_KEY", Bearer)],
            compat: Compat {
                thinking_switch: Some(ThinkingSwitch::Thinking),
                reasoning_field: Some("reasoning_content"),
                output_schema: SchemaSupport::None,
                ..Compat::default()
            },
            ..host()
        },
        Host {
            id: "moonshot",
            aliases: &["moonshotai", "kimi"],
            base_url: Some("https://api.moonshot.ai/v1"),
            other_wires: vec![at(WireFormat::AnthropicMessages, "https://api.moonshot.ai/anthropic/v1")],
            keys: &[("MOONSHOT_API_KEY", Bearer), ("KIMI_API_KEY", Bearer)],
            compat: Compat {
                prompt_cache_key: true,
                thinking_switch: Some(ThinkingSwitch::Thinking),
                reasoning_field: Some("reasoning_content"),
                reasoning_field_always: true,
                output_schema: SchemaSupport::Plain,
                ..Compat::default()
            },
            ..host()
        },
        Host {
            id: "minimax",
            wire: WireFormat::AnthropicMessages,
            base_url: Some("https://api.minimax.io/anthropic/v1"),
            other_wires: vec![at(WireFormat::OpenaiCompletions, "https://api.minimax.io/v1")],
            keys: &[("MINIMAX_API_KEY", Bearer)],
            ..host()
        },
        Host {
            id: "nvidia",
            aliases: &["nim"],
            base_url: Some("https://integrate.api.nvidia.com/v1"),
            keys: &[("NVIDIA_API_KEY", Bearer)],
            compat: Compat {
                reasoning_field: Some("reasoning_content"),
                output_schema: SchemaSupport::Plain,
                ..Compat::default()
            },
            ..host()
        },
        Host {
            id: "vercel",
            aliases: &["ai-gateway"],
            base_url: Some("https://ai-gateway.vercel.sh/v1"),
            keys: &[("AI_GATEWAY_API_KEY", Bearer), ("VERCEL_OIDC_TOKEN", Bearer)],
            compat: vercel(),
            model_compat: vec![("anthropic/", Compat { cache_control: true, ..vercel() })],
            ..host()
        },
        // Serves each model by the wire of the model's vendor; the catalog says which one that is.
        Host {
            id: "opencode",
            aliases: &["opencode-zen", "zen"],
            base_url: Some("https://opencode.ai/inference/openai/v1"),
            other_wires: vec![
                with_key(
                    WireFormat::AnthropicMessages,
                    "https://opencode.ai/inference/anthropic/v1",
                    Header("x-api-key"),
                ),
                with_key(
                    WireFormat::GoogleGenerativeAi,
                    "https://opencode.ai/inference/google/v1beta",
                    Header("x-goog-api-key"),
                ),
            ],
            keys: &[("OPENCODE_API_KEY", Bearer)],
            compat: opencode(),
            model_compat: vec![
                ("deepseek", Compat { reasoning_field_always: true, ..opencode() }),
                ("kimi-k2.6", Compat { thinking_switch: Some(ThinkingSwitch::Thinking), ..opencode() }),
            ],
            ..host()
        },
        Host {
            id: "ollama",
            base_url: Some("http://127.0.0.1:11434/v1"),
            base_url_variables: &["OLLAMA_HOST"],
            keys: &[("OLLAMA_API_KEY", Bearer)],
            local: true,
            compat: Compat { reasoning_field: Some("reasoning"), ..Compat::default() },
            ..host()
        },
        Host {
            id: "llamacpp",
            aliases: &["llama.cpp", "llama-server"],
            base_url: Some("http://127.0.0.1:8080/v1"),
            keys: &[("LLAMA_API_KEY", Bearer)],
            local: true,
            compat: Compat {
                thinking_switch: Some(ThinkingSwitch::ChatTemplate),
                reasoning_field: Some("reasoning_content"),
                top_k: true,
                ..Compat::default()
            },
            ..host()
        },
        Host {
            id: "vllm",
            base_url: Some("http://127.0.0.1:8000/v1"),
            keys: &[("VLLM_API_KEY", Bearer)],
            local: true,
            compat: Compat {
                thinking_switch: Some(ThinkingSwitch::ChatTemplate),
                reasoning_field: Some("reasoning_content"),
                top_k: true,
                ..Compat::default()
            },
            ..host()
        },
        Host {
            id: "lmstudio",
            aliases: &["lm-studio"],
            base_url: Some("http://127.0.0.1:1234/v1"),
            keys: &[("LM_API_TOKEN", Bearer)],
            local: true,
            compat: Compat { top_k: true, ..Compat::default() },
            ..host()
        },
        Host { id: CUSTOM, base_url_variables: &["TERRET_BASE_URL"], keys: &[("TERRET_API_KEY", Bearer)], ..host() },
    ]
});

/// Any other server, at an address that the user gives.
pub(crate) const CUSTOM: &str = "custom";

/// What most hosts have in common.
fn host() -> Host {
    Host {
        id: "",
        aliases: &[],
        wire: WireFormat::OpenaiCompletions,
        imitated_by: None,
        base_url: None,
        other_wires: Vec::new(),
        base_url_variables: &[],
        path: None,
        keys: &[],
        local: false,
        compat: Compat::default(),
        model_compat: Vec::new(),
    }
}

fn at(wire: WireFormat, base_url: &'static str) -> OtherWire {
    OtherWire { wire, base_url, scheme: None }
}

fn with_key(wire: WireFormat, base_url: &'static str, scheme: AuthScheme) -> OtherWire {
    OtherWire { wire, base_url, scheme: Some(scheme) }
}

/// OpenAI itself takes everything that its wire knows, and call ids of at most 40 characters.
fn openai() -> Compat {
    Compat {
        max_completion_tokens: true,
        developer_role: true,
        prompt_cache_key: true,
        call_id: CallIdRule::AtMost(40),
        ..Compat::default()
    }
}

fn openrouter() -> Compat {
    Compat {
        thinking_switch: Some(ThinkingSwitch::Reasoning),
        reasoning_field: Some("reasoning"),
        top_k: true,
        ..Compat::default()
    }
}

fn opencode() -> Compat {
    Compat {
        reasoning_field: Some("reasoning_content"),
        affinity_header: Some("x-opencode-session"),
        ..Compat::default()
    }
}

fn vercel() -> Compat {
    Compat { reasoning_field: Some("reasoning"), ..Compat::default() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::endpoint::BaseUrl;

    #[test]
    fn names_are_unique_and_addresses_are_valid() {
        let mut names = HashSet::new();
        for host in hosts() {
            for name in host.names() {
                assert!(names.insert(name), "{name} twice");
                assert_eq!(Host::find(name).map(|found| found.id), Some(host.id));
            }
            if let Some(base_url) = host.base_url {
                BaseUrl::exact(base_url).unwrap();
                assert_eq!(base_url.starts_with("http://127.0.0.1:"), host.local, "{base_url}");
            }
            for OtherWire { wire, base_url, .. } in &host.other_wires {
                BaseUrl::exact(base_url).unwrap();
                assert!(base_url.starts_with("https://") && *wire != host.wire, "{base_url}");
                assert_eq!(host.base_url_for(wire), Some(*base_url));
            }
            assert!(host.wire.wire().is_some());
            assert!(!host.keys.is_empty());
        }
    }
}
