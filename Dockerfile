# A service that embeds text with a saved model, on a CPU. Not built here: no Docker engine was at hand.
#   docker build -t bertflow .
#   docker run -p 8000:8000 -v ./my-model:/model:ro -e BERTFLOW_API_KEYS=secret bertflow
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[serve,onnx]' && useradd --create-home bertflow
USER bertflow
EXPOSE 8000
ENTRYPOINT ["bertflow", "serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
