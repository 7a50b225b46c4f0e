// VS Code in a browser has no files: this extension has one, a notebook that the server sends, and opens it.
const vscode = require("vscode");

exports.activate = async ({ extensionUri, subscriptions }) => {
  const answer = await fetch(extensionUri.with({ path: "/notebook.ipynb" }).toString());
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const nothing = () => {};
  const files = {
    onDidChangeFile: new vscode.EventEmitter().event,
    watch: () => ({ dispose: nothing }),
    stat: () => ({ type: vscode.FileType.File, ctime: 0, mtime: 0, size: bytes.length }),
    readDirectory: () => [],
    readFile: () => bytes,
    ...{ writeFile: nothing, createDirectory: nothing, delete: nothing, rename: nothing },
  };
  subscriptions.push(vscode.workspace.registerFileSystemProvider("memory", files, { isReadonly: true }));
  const notebook = await vscode.workspace.openNotebookDocument(vscode.Uri.parse("memory:/notebook.ipynb"));
  await vscode.window.showNotebookDocument(notebook);
};
