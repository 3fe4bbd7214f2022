// on the server, the file of the model is read from node_modules
export default { serverExternalPackages: ['@winnow/demo-model'] };
