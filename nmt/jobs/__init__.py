"""What the commands do: translate lines and documents, synthesize corpora, write outputs, divide
work into shards."""
