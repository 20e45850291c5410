select id as product_id, count(*) - 1 as changes, max({{ amount('price') }}) as highest
from {{ ref('product_prices') }}
group by id
