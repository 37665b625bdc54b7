//! A request as the API reads it.
//!
//! `contents` stands last, and a message adds to what stands before it without changing that, so that the next request
//! begins with the same bytes up to the last message.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser};
use serde_json::value::RawValue;

use super::thinking::ThinkingConfig;
use crate::request::ToolSpec;
use crate::transcript::{Arguments, Content as Piece, Image, RawJson, replace_lone_surrogates};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_instruction: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<[Tool<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_config: Option<ToolConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) generation_config: Option<GenerationConfig<'a>>,
    /// [`Content`]s.
    pub(super) contents: [(); 0],
}

#[derive(Serialize)]
pub(super) struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    pub(super) parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum Part<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        thought: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
    Image {
        inline_data: InlineData<'a>,
    },
    Call {
        function_call: FunctionCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
    Response {
        function_response: FunctionResponse<'a>,
    },
    /// A part as it came from the API.
    Verbatim(&'a RawJson),
}

impl<'a> Part<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Part::Text { text: text.into(), thought: false, thought_signature: None }
    }

    pub(super) fn piece(piece: &'a Piece) -> Self {
        match piece {
            Piece::Text(text) => Part::text(&text.text),
            Piece::Image(image) => Part::Image { inline_data: InlineData::of(image) },
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

impl<'a> InlineData<'a> {
    pub(super) fn of(image: &'a Image) -> Self {
        Self { mime_type: &image.media_type, data: image.base64() }
    }
}

#[derive(Serialize)]
pub(super) struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) args: Args<'a>,
}

/// Arguments as the model wrote them, apart from escapes that no JSON parser takes.
pub(super) struct Args<'a>(pub(super) &'a Arguments);

impl Serialize for Args<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = replace_lone_surrogates(self.0.as_str());
        serde_json::from_str::<&RawValue>(&text).map_err(ser::Error::custom)?.serialize(serializer)
    }
}

#[derive(Serialize)]
pub(super) struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) response: Response,
    /// Media that the response holds besides its text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<Part<'a>>,
}

/// The keys are the API's own words for what a function returned.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Response {
    Output(String),
    Error(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tool<'a> {
    #[serde(serialize_with = "declarations")]
    pub(super) function_declarations: &'a [ToolSpec],
}

fn declarations<S: Serializer>(tools: &&[ToolSpec], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct FunctionDeclaration<'a> {
        name: &'a str,
        description: &'a str,
        parameters_json_schema: &'a RawJson,
    }
    serializer.collect_seq(tools.iter().map(|ToolSpec { name, description, parameters }| FunctionDeclaration {
        name,
        description,
        parameters_json_schema: parameters,
    }))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig<'a> {
    pub(super) function_calling_config: FunctionCallingConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionCallingConfig<'a> {
    pub(super) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed_function_names: Option<[&'a str; 1]>,
}

#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) top_k: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_json_schema: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking_config: Option<ThinkingConfig>,
}
