use serde_json::json;
use terret_agent::{EffectClass, SharedTool, Spill as _, ToolContext, ToolSet};
use terret_tools::{BashOptions, Workspace, workspace_tools};

fn tools() -> Vec<SharedTool> {
    workspace_tools(&Workspace::new(std::env::temp_dir()).unwrap(), BashOptions::default())
}

#[test]
fn the_order_is_always_the_same() {
    let names: Vec<String> = tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["read", "bash", "edit", "write", "grep", "find", "ls"]);
}

#[test]
fn the_same_tools_are_described_in_the_same_bytes() {
    let described = || -> Vec<String> {
        tools().iter().map(|tool| format!("{}{}", tool.spec().description, tool.spec().parameters.as_str())).collect()
    };
    assert_eq!(described(), described());
}

#[test]
fn all_descriptions_and_schemas_together_cost_less_than_1500_tokens() {
    let characters: usize = tools()
        .iter()
        .map(|tool| tool.spec())
        .map(|spec| spec.name.len() + spec.description.len() + spec.parameters.as_str().len())
        .sum();
    assert!(characters / 4 < 1_500, "about {} tokens", characters / 4);
}

#[test]
fn what_only_reads_may_be_repeated_and_run_beside_others_and_what_changes_something_runs_alone() {
    use EffectClass::{AtMostOnce, Idempotent, ReadOnly};
    let classes: Vec<_> =
        tools().iter().map(|tool| (tool.spec().name.clone(), tool.effect(), tool.exclusive())).collect();
    let expected = [
        ("read", ReadOnly, false),
        ("bash", AtMostOnce, true),
        ("edit", AtMostOnce, true),
        ("write", Idempotent, true),
        ("grep", ReadOnly, false),
        ("find", ReadOnly, false),
        ("ls", ReadOnly, false),
    ];
    assert_eq!(classes, expected.map(|(name, effect, exclusive)| (name.to_owned(), effect, exclusive)));
}

#[test]
fn unknown_fields_and_numbers_out_of_range_are_rejected() {
    let set = ToolSet::new(tools()).unwrap();
    let cases = [
        ("read", r#"{"path":"a","lines":3}"#),
        ("read", r#"{"path":"a","limit":0}"#),
        ("read", r#"{"path":"a","offset":-1}"#),
        ("bash", r#"{"command":"true","timeout":0}"#),
        ("bash", r#"{"command":"true","timeout":3601}"#),
        ("edit", r#"{"path":"a","edits":[]}"#),
        ("edit", r#"{"path":"a","edits":[{"oldText":"a","newText":"b","all":true}]}"#),
        ("grep", r#"{}"#),
    ];
    for (tool, arguments) in cases {
        let checked = set.validate(tool, &terret_llm::Arguments::new(arguments)).unwrap();
        assert!(checked.is_err(), "{tool} {arguments}");
    }
}

#[test]
fn a_root_that_is_no_directory_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Workspace::new(file.path()).is_err());
    assert!(Workspace::new(file.path().with_extension("missing")).is_err());
}

#[tokio::test]
async fn a_result_of_any_tool_that_is_too_long_is_kept_where_read_can_find_it() {
    let workspace = Workspace::new(std::env::temp_dir()).unwrap();
    let tools = ToolSet::new(workspace_tools(&workspace, BashOptions::default())).unwrap();
    let kept = workspace.keep("call", "all of it\n").await.unwrap();
    let page = tools.get("read").unwrap().call(json!({"path": kept}), ToolContext::detached("call")).await.unwrap();
    assert_eq!(page.content[0].as_text(), Some("all of it"));
    drop((tools, workspace));
    assert!(!std::path::Path::new(&kept).exists(), "a temporary place goes with the workspace");
}
